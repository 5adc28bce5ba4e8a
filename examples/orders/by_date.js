// Each article sold, by [year, month, day]: for --group-level 1, 2 or 3.
function(doc) {
  doc.lines.forEach(function(line) {
    emit(doc.date, {article: line.article, quantity: line.quantity});
  });
}
