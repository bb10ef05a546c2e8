//! Models of equal size: how many parameters can learn, and the width that brings them, or the work, to a number.

use crate::{Error, Flops, ModelConfig, ModelKind, ParameterSpec, Result, specs};

/// How far from the wanted amount a matched model may be.
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
    if !config.transports() && spec.name.contains(".transport.") {
        return spec.elements();
    }
    let held = (5 - config.free_controllers()) * config.heads;
    if spec.name.ends_with(".controls.weight") {
        held * config.d_model
    } else if spec.name.ends_with(".controls.bias") {
        held
    } else {
        0
    }
}

/// The width that is chosen to match a model, by its key: the inner size of its MLP, an LSTM's `d_model`, the hidden
/// units of a Neural Turing machine.
pub fn matched_width(config: &ModelConfig) -> (&'static str, usize) {
    match config.kind {
        ModelKind::Atpm | ModelKind::Transformer => ("mlp", config.mlp),
        ModelKind::Lstm => ("d_model", config.d_model),
        ModelKind::Ntm => ("hidden", config.ntm().hidden),
    }
}

/// The same model with [`matched_width`] chosen so that its learning parameters come nearest to `target`.
///
/// # Errors
/// No width that comes within 2 %, or a configuration that cannot be built.
pub fn match_parameters(config: &ModelConfig, target: usize) -> Result<ModelConfig> {
    nearest(config, target as f64, "parameters", |config| Ok(learning_parameters(config)? as f64))
}

/// The same model with [`matched_width`] chosen so that its FLOPs of training a token, in documents of `tokens` tokens, come
/// nearest to `target`.
///
/// # Errors
/// As [`match_parameters`].
pub fn match_flops(config: &ModelConfig, target: f64, tokens: usize) -> Result<ModelConfig> {
    nearest(config, target, "FLOPs a token", |config| {
        config.validate()?;
        Ok(Flops::of_documents(config, tokens).training())
    })
}

/// The model whose `amount`, which grows with its width, comes nearest to `target`.
fn nearest(
    config: &ModelConfig,
    target: f64,
    of_what: &str,
    amount: impl Fn(&ModelConfig) -> Result<f64>,
) -> Result<ModelConfig> {
    let with = |width: usize| match config.kind {
        ModelKind::Atpm | ModelKind::Transformer => ModelConfig { mlp: width, ..config.clone() },
        ModelKind::Lstm => ModelConfig { d_model: width, ..config.clone() },
        ModelKind::Ntm => ModelConfig { hidden: Some(width), ..config.clone() },
    };
    // The first width past the target, or the one before it.
    let (mut low, mut high) = (1, MOST_WIDTH);
    while low < high {
        let middle = low.midpoint(high);
        if amount(&with(middle))? < target { low = middle + 1 } else { high = middle }
    }
    let off = |width: usize| Ok::<_, Error>((amount(&with(width))? - target).abs());
    let (below, above) = (low.saturating_sub(1).max(1), low);
    let width = if off(below)? <= off(above)? { below } else { above };
    let off = off(width)?;
    if off > TOLERANCE * target {
        let problem =
            format!("no size brings the model within 2 % of {target} {of_what}; the nearest is {off} away");
        return Err(Error::Config { key: matched_width(config).0, problem });
    }
    Ok(with(width))
}
