//! What a parameter's name and shape say about weight decay.
//!
//! | decayed | not decayed |
//! |---|---|
//! | matrices (`*.weight` of two or more dimensions, the transport stacks) | embeddings, norms, biases, `a_log`, `dt_bias`, anything of one dimension, `short_conv.weight` |
//!
//! The short convolution's `[C, W]` looks like a matrix but is one small filter per channel: nothing
//! is mixed, and shrinking a filter only rescales its channel, so it stays out with the vectors.

use crate::{Error, Result};

/// Whether weight decay applies to the parameter of this name and shape.
///
/// # Errors
/// A name that no rule covers: a new kind of parameter is classified here before it can train.
pub fn decays(name: &str, shape: &[usize]) -> Result<bool> {
    let (owner, last) = name.rsplit_once('.').unwrap_or(("", name));
    let owner = owner.rsplit('.').next().unwrap_or("");
    let undecayed = matches!(last, "a_log" | "dt_bias" | "bias")
        || (last == "weight"
            && (shape.len() == 1 || owner.ends_with("norm") || matches!(owner, "embedding" | "short_conv")));
    let decayed = shape.len() >= 2
        && (last == "weight" || (owner == "transport" && matches!(last, "a_key" | "a_value" | "c")));
    match (undecayed, decayed) {
        (true, _) => Ok(false),
        (false, true) => Ok(true),
        (false, false) => Err(Error::Unclassified { name: name.into(), shape: shape.to_vec() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_decide() {
        for (name, shape, expected) in [
            ("embedding.weight", vec![8, 4], false),
            ("head.weight", vec![8, 4], true),
            ("norm.weight", vec![4], false),
            ("blocks.0.mixer.short_conv.weight", vec![8, 4], false),
            ("blocks.0.mixer.controls.bias", vec![4, 2], false),
            ("blocks.0.mixer.transport.c", vec![2, 4, 1], true),
            ("blocks.0.mixer.gain.weight", vec![4], false),
            ("blocks.0.attention.q.weight", vec![4, 4], true),
        ] {
            assert_eq!(decays(name, &shape).unwrap(), expected, "{name}");
        }
    }

    // T10: a new kind of parameter is an error until somebody classifies it.
    #[test]
    fn unknown_kinds_are_refused() {
        for (name, shape) in [
            ("blocks.0.mixer.scale", vec![4]),
            ("gate", vec![4, 4]),
            ("blocks.0.mixer.transport.d", vec![2, 2, 2]),
            ("blocks.0.mixer.transport.c", vec![2]),
        ] {
            assert!(matches!(decays(name, &shape), Err(Error::Unclassified { .. })), "{name}");
        }
    }
}
