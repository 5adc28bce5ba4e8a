// The article sold most often, and how often each was sold.
function(keys, values, rereduce) {
  var sold = {};
  values.forEach(function(value) {
    var counts = rereduce ? value.sold : {};
    if (!rereduce) counts[value.article] = value.quantity;
    for (var article in counts) sold[article] = (sold[article] || 0) + counts[article];
  });
  var best = null;
  for (var article in sold) {
    if (best === null || sold[article] > sold[best]) best = article;
  }
  return {best: best, sold: sold};
}
