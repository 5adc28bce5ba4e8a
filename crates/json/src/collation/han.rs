//! Han characters by radical and stroke, as in CouchDB's ICU.
//!
//! SUMMARY   The compiled collation data has Han characters in the order of their code points.
//!           [`HanCollator`] replaces the n-th character in order of radical and stroke by the n-th in
//!           order of code points, and then compares the texts.
//! PROMISES  Texts without Han characters are recognised by their bytes and not changed. The table is
//!           made when the first text with one comes.
//! SOURCE    `han.txt`, which `han.py` writes from ICU 72.1, the version of CouchDB's own packages.
//! DIFFERS   Han characters that are newer than Unicode 15.0 are somewhere among the others.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::LazyLock;

use icu_collator::options::CollatorOptions;
use icu_collator::provider::{
    Baked, CollationData, CollationDiacriticsV1, CollationJamoV1, CollationMetadataV1,
    CollationReorderingV1, CollationRootV1, CollationSpecialPrimariesV1, CollationTailoringV1,
};
use icu_collator::{Collator, CollatorBorrowed, CollatorPreferences};
use icu_normalizer::properties::{CanonicalDecompositionBorrowed, Decomposed};
use icu_normalizer::provider::{
    Baked as Normalization, NormalizerNfdDataV1, NormalizerNfdTablesV1,
};
use icu_provider::{DataError, DataProvider, DataRequest, DataResponse};
use rustc_hash::FxHashMap;

/// All Han characters of Unicode 15.0 in their order.
const IN_ORDER: &str = include_str!("han.txt");

/// The smallest secondary weight of an element of the collation: what has less is no element.
const SECONDARY_MIN: u64 = 0x0500;

static COLLATOR: LazyLock<HanCollator> = LazyLock::new(HanCollator::new);

/// Returns the collator for a text, if it may have Han characters.
pub(super) fn collator_for(text: &[u8]) -> Option<&'static HanCollator> {
    let may_begin_one = |pair: &[u8]| {
        matches!(
            (pair[0], pair[1]),
            // Radicals, what contains characters, and the characters themselves.
            (0xe2, 0xba..=0xbf) | (0xe3..=0xe9, _) | (0xef, 0xa4..=0xab) | (0xf0, 0x9f..=0xb3)
        )
    };
    (!text.is_ascii() && text.windows(2).any(may_begin_one)).then(|| &*COLLATOR)
}

/// The collation of texts with Han characters.
pub(super) struct HanCollator {
    order: Order,
    collator: CollatorBorrowed<'static>,
}

impl HanCollator {
    fn new() -> Self {
        let order = Order::new();
        let provider = Provider(&order);
        let (preferences, options) = (CollatorPreferences::default(), CollatorOptions::default());
        let collator = Collator::try_new_unstable(&provider, preferences, options)
            .expect("VW-1: the root collation is compiled in");
        // There is one, which is never freed.
        let collator = Box::leak(Box::new(collator)).as_borrowed();
        Self { order, collator }
    }

    pub(super) fn compare(&self, one: &[u8], other: &[u8]) -> Ordering {
        let (one, other) = (self.order.placed(one), self.order.placed(other));
        self.collator.compare_utf8(&one, &other)
    }

    pub(super) fn write_sort_key(&self, text: &[u8], key: &mut Vec<u8>) {
        let text = self.order.placed(text);
        let Ok(()) = self.collator.write_sort_key_utf8_to(&text, key);
    }
}

/// The order of Han characters.
struct Order {
    /// Character -> the one that it represents.
    placed: FxHashMap<char, char>,
    /// Those places, in the order of the compiled data.
    places: Vec<char>,
}

impl Order {
    fn new() -> Self {
        let in_order: Vec<char> = IN_ORDER.chars().filter(|c| *c != '\n').collect();
        let mut places = in_order.clone();
        // The compiled data has the characters of the basic blocks before those of the extensions.
        let is_extension =
            |c: char| !matches!(c, '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}');
        places.sort_unstable_by_key(|c| (is_extension(*c), *c));
        let mut placed: FxHashMap<char, char> =
            in_order.into_iter().zip(places.iter().copied()).collect();
        // Those that only stand for others are taken apart before they are compared.
        let decompositions = CanonicalDecompositionBorrowed::new();
        for character in ('\u{f900}'..='\u{faff}').chain('\u{2f800}'..='\u{2fa1f}') {
            if let Decomposed::Singleton(meant) = decompositions.decompose(character)
                && let Some(place) = placed.get(&meant).copied()
            {
                placed.insert(character, place);
            }
        }
        Self { placed, places }
    }

    fn place(&self, character: char) -> char {
        self.placed.get(&character).copied().unwrap_or(character)
    }

    /// The text with each Han character replaced by the one that it represents.
    fn placed<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        let Ok(text) = std::str::from_utf8(text) else {
            return Cow::Borrowed(text);
        };
        let placed: String = text.chars().map(|c| self.place(c)).collect();
        Cow::Owned(placed.into_bytes())
    }
}

/// The compiled data, but for the elements of characters that contain Han characters, such as radicals
/// and signs in circles: these contain the one that they represent.
struct Provider<'a>(&'a Order);

impl DataProvider<CollationRootV1> for Provider<'_> {
    fn load(&self, request: DataRequest<'_>) -> Result<DataResponse<CollationRootV1>, DataError> {
        let compiled: DataResponse<CollationRootV1> = Baked.load(request)?;
        let primaries = Primaries::of(self.0);
        Ok(DataResponse {
            metadata: compiled.metadata,
            payload: compiled.payload.map_project(|root, _| {
                let elements = root.ces.iter().map(|element| primaries.moved(element));
                CollationData {
                    ces: elements.collect(),
                    ..root
                }
            }),
        })
    }
}

/// Loads compiled data as it is.
macro_rules! as_compiled {
    ($($marker:ty: $compiled:expr),*) => {$(
        impl DataProvider<$marker> for Provider<'_> {
            fn load(&self, request: DataRequest<'_>) -> Result<DataResponse<$marker>, DataError> {
                $compiled.load(request)
            }
        }
    )*};
}

as_compiled!(
    CollationDiacriticsV1: Baked,
    CollationJamoV1: Baked,
    CollationMetadataV1: Baked,
    CollationReorderingV1: Baked,
    CollationSpecialPrimariesV1: Baked,
    CollationTailoringV1: Baked,
    NormalizerNfdDataV1: Normalization,
    NormalizerNfdTablesV1: Normalization
);

/// The primary weights of Han characters in the compiled data.
struct Primaries<'a> {
    order: &'a Order,
    compiled: CollatorBorrowed<'static>,
}

impl<'a> Primaries<'a> {
    fn of(order: &'a Order) -> Self {
        let compiled = super::Collation::new().strings;
        Self { order, compiled }
    }

    /// The primary weight is what a sort key begins with, up to its first 1.
    fn primary(&self, character: char) -> u32 {
        let mut key = Vec::new();
        let mut text = [0; 4];
        let text = character.encode_utf8(&mut text);
        let Ok(()) = self
            .compiled
            .write_sort_key_utf8_to(text.as_bytes(), &mut key);
        let bytes = key.iter().take_while(|byte| **byte != 1).take(4);
        (0..4)
            .zip(bytes.chain([&0; 4]))
            .fold(0, |primary, (_, byte)| (primary << 8) | u32::from(*byte))
    }

    /// An element of the collation, with the primary weight of the place of its character if that is a
    /// Han character.
    fn moved(&self, element: u64) -> u64 {
        let primary = u32::try_from(element >> 32).unwrap_or(0);
        let places = &self.order.places;
        let (Some(first), Some(last)) = (places.first(), places.last()) else {
            return element;
        };
        let is_han = (self.primary(*first)..=self.primary(*last)).contains(&primary);
        if !is_han || ((element >> 16) & 0xffff) < SECONDARY_MIN {
            return element;
        }
        let found = places.binary_search_by_key(&primary, |place| self.primary(*place));
        let place = found.map(|index| self.order.place(places[index]));
        place.map_or(element, |place| {
            (u64::from(self.primary(place)) << 32) | (element & 0xffff_ffff)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Vec<u8> {
        let collator = collator_for(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
        let mut key = Vec::new();
        collator.write_sort_key(text.as_bytes(), &mut key);
        key
    }

    #[test]
    fn all_han_characters_are_in_the_order_of_radicals_and_strokes() {
        let texts = IN_ORDER.chars().filter(|c| *c != '\n').map(String::from);
        let keys: Vec<Vec<u8>> = texts.map(|text| key(&text)).collect();
        assert_eq!(keys.len(), 97_058);
        assert!(keys.is_sorted_by(|one, other| one < other));
    }

    #[test]
    fn texts_are_in_the_order_that_icu_puts_them_in() {
        let texts: Vec<&str> = include_str!("han_sorted.txt").lines().collect();
        assert!(texts.len() > 1000);
        let collation = super::super::Collation::new();
        for pair in texts.windows(2) {
            let [one, other] = [pair[0], pair[1]].map(str::as_bytes);
            let compared = collation.compare_strings(one, other);
            assert!(compared.is_le(), "{} before {}", pair[0], pair[1]);
            let [one, other] = [pair[0], pair[1]].map(|text| {
                let mut key = Vec::new();
                collation.write_text(text.as_bytes(), &mut key);
                key
            });
            assert_eq!(one.cmp(&other), compared, "{} {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn a_variant_character_collates_as_the_one_it_represents() {
        for (one, other) in [("\u{f900}", "\u{8c48}"), ("\u{2f800}", "\u{4e3d}")] {
            assert_eq!(key(one), key(other), "{one} {other}");
        }
        assert!(key("\u{2f01}") > key("\u{4e28}") && key("\u{2f01}") < key("\u{4e29}"));
    }

    #[test]
    fn texts_without_han_characters_pass_by() {
        for text in [
            "",
            "abc",
            "\u{e9}\u{300}",
            "\u{2019}",
            "\u{ac00}",
            "\u{44f}",
            "\u{fb01}",
        ] {
            assert!(collator_for(text.as_bytes()).is_none(), "{text}");
        }
    }
}
