// The total of each paid order, by customer.
function(doc) {
  if (doc.type !== 'order' || doc.state !== 'paid') return;
  var total = 0;
  doc.lines.forEach(function(line) {
    total += line.price * line.quantity;
  });
  emit(doc.customer, Math.round(total * 100) / 100);
}
