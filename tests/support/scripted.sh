# A query server for tests. Each line is a compact JSON array. If its first element is one of the names below, the
# server runs that command; otherwise it answers with the line itself.
say() { printf '%s\n' "$1"; }

while IFS= read -r line; do
  case $line in
    '['*) ;;
    *) say "[\"error\",\"no_list\",$line]"; continue ;;
  esac
  name=${line#'["'} name=${name%%'"'*}
  # `value` is what follows the name, as JSON; `text` is the same without quotes.
  value=${line#"[\"$name\""} value=${value#,} value=${value# } value=${value%]}
  text=${value#'"'} text=${text%'"'}
  case $name in
    reset) say true ;;
    ddoc) case $value in '"new"'*) say true ;; *) say "$line" ;; esac ;;
    echo) say "$value" ;;
    raw) printf '%b' "$(say "$text" | sed 's/\\"/"/g')" ;;
    pid) say $$ ;;
    env) if found=$(printenv "$text"); then say "\"$found\""; else say null; fi ;;
    args) list=; for argument do list="$list,\"$argument\""; done; say "[${list#,}]" ;;
    log) say "$line"; say true ;;
    sleep) sleep "$value"; say '"slept"' ;;
    keep) kept=$kept$(head -c "$value" /dev/zero | tr '\0' x); say true ;;
    wait) : > "$text.here"; while [ ! -e "$text" ]; do sleep 0.005; done; say '"waited"' ;;
    # Waits for a pipe into which nobody writes: unlike `sleep`, this leaves no child when the server is killed.
    never) mkfifo "$0.never" 2>/dev/null; read -r line <> "$0.never" ;;
    exit) echo 'last words' >&2; exit "$value" ;;
    refused) echo "refused system call $text" >&2; kill -SYS $$ ;;
    answer_and_exit) say true; exit "$value" ;;
    fatal) say "$line"; exit 1 ;;
    *) say "$line" ;;
  esac
done
