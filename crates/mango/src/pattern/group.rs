//! Groups in an expression, and references to them.

use super::translate::Translator;

impl Translator<'_> {
    /// Translates the construct after an opening parenthesis.
    pub fn opening(&mut self) -> Result<(), String> {
        match (self.peek(), self.peek_at(1)) {
            (Some('*'), Some('A'..='Z' | ':')) => Err("(*...) is not supported".into()),
            _ if self.take('?') => self.special(),
            _ => self.capture(None),
        }
    }

    fn capture(&mut self, name: Option<String>) -> Result<(), String> {
        self.groups.count += 1;
        if let Some(name) = name
            && self.groups.names.insert(name, self.groups.count).is_some()
        {
            return Err("two groups have the same name".into());
        }
        self.open_group("(");
        Ok(())
    }

    /// Translates the construct after `(?`.
    fn special(&mut self) -> Result<(), String> {
        let kind = self.next().ok_or("a group has no closing parenthesis")?;
        if matches!(
            (kind, self.peek()),
            ('R' | '&' | '+' | '0'..='9', _) | ('P', Some('>')) | ('-', Some('0'..='9'))
        ) {
            return Err("calls of groups are not supported".into());
        }
        match kind {
            '#' => {
                self.take_until(')').ok_or("a comment has no end")?;
                Ok(())
            }
            ':' => {
                self.open_group("(?:");
                Ok(())
            }
            '=' => self.keeping("(?="),
            '!' => self.keeping("(?!"),
            '>' => self.keeping("(?>"),
            '<' if self.take('=') => self.keeping("(?<="),
            '<' if self.take('!') => self.keeping("(?<!"),
            '<' => self.named_capture('>'),
            '\'' => self.named_capture('\''),
            'P' if self.take('<') => self.named_capture('>'),
            'P' if self.take('=') => {
                let name = self
                    .take_until(')')
                    .ok_or("a group has no closing parenthesis")?;
                let group = self.named(&name)?;
                self.reference(group)
            }
            '(' => self.condition(),
            '|' => Err("(?|...) is not supported".into()),
            _ => self.flags(kind),
        }
    }

    fn keeping(&mut self, text: &str) -> Result<(), String> {
        self.goes_back = true;
        self.open_group(text);
        Ok(())
    }

    fn named_capture(&mut self, end: char) -> Result<(), String> {
        let name = self.take_until(end).unwrap_or_default();
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
            return Err("a group's name has to begin with a letter or an underscore".into());
        }
        if name.len() > 32 || !name.bytes().all(is_part) {
            return Err("a group's name has up to 32 letters, digits and underscores".into());
        }
        self.capture(Some(name))
    }

    /// `(?(1)...` and `(?(<name>)...`.
    fn condition(&mut self) -> Result<(), String> {
        let text = self.take_until(')').unwrap_or_default();
        let bare = text.trim_matches(['<', '>', '\'']);
        let group = match bare.parse::<usize>() {
            Ok(group) => group,
            Err(_) if bare.len() < text.len() => self.named(bare)?,
            Err(_) => return Err(format!("the condition ({text}) is not supported")),
        };
        self.keeping(&format!("(?({group})"))
    }

    /// `(?i)`, `(?i-s:...)`. The translator skips white space and comments: the engine never gets `x`.
    fn flags(&mut self, first: char) -> Result<(), String> {
        let mut kept = String::new();
        let mut on = true;
        let mut flags = self.flags;
        let mut next = Some(first);
        loop {
            match next {
                Some('x') => flags.extended = on,
                Some(flag @ ('i' | 'm' | 's')) => {
                    flags.caseless = if flag == 'i' { on } else { flags.caseless };
                    kept.push(flag);
                }
                Some('-') if on => {
                    on = false;
                    kept.push('-');
                }
                Some(')') => {
                    self.flags = flags;
                    let kept = kept.trim_end_matches('-');
                    if !kept.is_empty() {
                        self.assertion(&format!("(?{kept})"));
                    }
                    return Ok(());
                }
                Some(':') => {
                    let kept = kept.trim_end_matches('-').to_owned();
                    self.open_group(&format!("(?{kept}:"));
                    self.flags = flags;
                    return Ok(());
                }
                Some(other) => return Err(format!("(?{other} is not supported")),
                None => return Err("a group has no closing parenthesis".into()),
            }
            next = self.next();
        }
    }

    /// `\g{1}`, `\g-1`, `\g{name}`, `\k<name>`, ..., after the letter.
    pub fn reference_by_name(&mut self, letter: char) -> Result<(), String> {
        let end = match self.peek() {
            Some('{') => Some('}'),
            Some('<') if letter == 'k' => Some('>'),
            Some('\'') if letter == 'k' => Some('\''),
            Some('<' | '\'') => return Err("calls of groups are not supported".into()),
            _ if letter == 'k' => return Err("\\k needs the name of a group".into()),
            _ => None,
        };
        let text = match end {
            Some(end) => {
                self.at += 1;
                self.take_until(end).unwrap_or_default()
            }
            None => {
                let sign = if self.take('-') { "-" } else { "" };
                format!("{sign}{}", self.digits(3, 10))
            }
        };
        let group = match text.strip_prefix('-') {
            Some(back) => {
                let back = back.parse().unwrap_or(usize::MAX);
                (self.groups.count + 1).saturating_sub(back)
            }
            None if letter == 'g' && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.parse().unwrap_or_default()
            }
            None => self.named(&text)?,
        };
        self.reference(group)
    }
}
