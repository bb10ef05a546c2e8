//! "Did you mean": the known name that is most like a mistyped one.

/// Names closer than this (0 = nothing alike, 1 = equal) are offered as what was meant.
const ALIKE: f64 = 0.6;

/// The name that is most like `wanted`, if any is alike enough.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::normalized_damerau_levenshtein(wanted, name), name))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}
