//! What every op's tests share: tolerances by dtype, comparison, finite differences.
