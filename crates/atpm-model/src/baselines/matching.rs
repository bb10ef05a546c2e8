//! Models of equal size: how many parameters can learn, and the width that brings them to a number.

use crate::{Error, ModelConfig, ModelKind, ParameterSpec, Result, specs};

/// How far from the wanted number a matched model may be.
const TOLERANCE: f64 = 0.02;
/// Widths that are looked at.
const MOST_WIDTH: usize = 1 << 14;

/// Parameters that a gradient can reach. What a pinned controller leaves without any effect is not counted: the
/// transport where ρ = 0, and the logits of a controller that is held.
///
/// # Errors
/// A configuration that cannot be built.
pub fn learning_parameters(config: &ModelConfig) -> Result<usize> {
    let learning = |spec: &ParameterSpec| spec.elements() - idle(config, spec);
    Ok(specs(config)?.iter().map(learning).sum())
}

/// Elements of a parameter that never move.
fn idle(config: &ModelConfig, spec: &ParameterSpec) -> usize {
    if config.rho == Some(0.0) && spec.name.contains(".transport.") {
        return spec.elements();
    }
    let held = [config.rho.is_some(), config.lambda.is_some(), config.tie_beta];
    let held = held.into_iter().filter(|held| *held).count() * config.heads;
    if spec.name.ends_with(".controls.weight") {
        held * config.d_model
    } else if spec.name.ends_with(".controls.bias") {
        held
    } else {
        0
    }
}

/// The same model with one width chosen so that its learning parameters come nearest to `target`: the inner size of
/// its MLP, an LSTM's `d_model`, the hidden units of a Neural Turing machine.
///
/// # Errors
/// No width that comes within 2 %, or a configuration that cannot be built.
pub fn match_parameters(config: &ModelConfig, target: usize) -> Result<ModelConfig> {
    let key = match config.kind {
        ModelKind::Atpm | ModelKind::Transformer => "mlp",
        ModelKind::Lstm => "d_model",
        ModelKind::Ntm => "hidden",
    };
    let with = |width: usize| match config.kind {
        ModelKind::Atpm | ModelKind::Transformer => ModelConfig { mlp: width, ..config.clone() },
        ModelKind::Lstm => ModelConfig { d_model: width, ..config.clone() },
        ModelKind::Ntm => ModelConfig { hidden: Some(width), ..config.clone() },
    };
    let count = |width: usize| learning_parameters(&with(width));
    // The count grows with the width: the first one past the target, or the one before it.
    let (mut low, mut high) = (1, MOST_WIDTH);
    while low < high {
        let middle = low.midpoint(high);
        if count(middle)? < target { low = middle + 1 } else { high = middle }
    }
    let candidates = [low.saturating_sub(1).max(1), low];
    let mut best = (usize::MAX, low);
    for width in candidates {
        best = best.min((count(width)?.abs_diff(target), width));
    }
    let (off, width) = best;
    if off as f64 > TOLERANCE * target as f64 {
        let problem =
            format!("no size brings the model within 2 % of {target} parameters; the nearest is {off} away");
        return Err(Error::Config { key, problem });
    }
    Ok(with(width))
}
