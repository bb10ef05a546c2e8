//! What one key alone cannot tell: settings that must agree with each other.

use anyhow::Context;
use atpm_model::ModelKind;

use super::{Run, ScheduleKind, TokenizerSpec, tokenizer};
use crate::run::exit::user;

/// Embedding tables are padded to a multiple of this many rows.
const VOCAB_STEP: usize = 64;

/// Refuses settings that contradict each other.
pub(super) fn validate(run: &Run) -> Result<(), String> {
    let (train, schedule) = (run.train(), run.schedule());
    if let Some(stop) = train.stop_after
        && stop > train.steps
    {
        return Err(format!("train.stop_after = {stop} lies beyond train.steps = {}", train.steps));
    }
    match schedule.kind {
        ScheduleKind::Wsd
            if schedule.decay_steps > 0 && schedule.warmup + schedule.decay_steps > train.steps =>
        {
            return Err(format!(
                "schedule.warmup = {} and schedule.decay_steps = {} are together longer than train.steps = {}",
                schedule.warmup, schedule.decay_steps, train.steps
            ));
        }
        ScheduleKind::Cosine if schedule.decay_steps > 0 => {
            return Err("schedule.decay_steps counts only with schedule.kind = \"wsd\"; leave it out".into());
        }
        _ => {}
    }
    if run.eval().every > 0 && run.data().val.is_empty() {
        return Err("eval.every is not 0, but data.val names no shards; set one of them".into());
    }
    if run.data().train.is_empty() {
        return Err("data.train names no shards".into());
    }
    let spec = tokenizer::parse(&run.data().tokenizer)?;
    if run.data().bos && !matches!(spec, TokenizerSpec::File(_)) {
        return Err(format!(
            "data.bos = true needs a tokenizer with a beginning-of-text token, and `{}` has none; give a \
             tokenizer.json that has one, or set data.bos = false",
            run.data().tokenizer
        ));
    }
    let kind = run.model().kind;
    if kind != ModelKind::Atpm && run.device().starts_with("cuda") {
        return Err(format!(
            "model.kind = \"{}\" has no CUDA kernels; set device = \"cpu\", or model.kind = \"atpm\"",
            kind.name()
        ));
    }
    let vocab = run.model().vocab.max(1);
    let model = atpm_model::ModelConfig { vocab, ..run.model().clone() };
    model.validate().map_err(|error| error.to_string())
}

impl Run {
    /// The same run with `model.vocab` filled in for a tokenizer of `ids` ids where it is 0.
    ///
    /// # Errors
    /// A vocabulary that does not hold the tokenizer's largest id (both numbers are named).
    pub fn with_vocab_for(&self, ids: usize) -> anyhow::Result<Self> {
        let given = self.model().vocab;
        let mut run = self.clone();
        if given == 0 {
            run.sections.model.vocab = ids.next_multiple_of(VOCAB_STEP);
        } else if given < ids {
            return Err(user(format!(
                "model.vocab = {given} is too small for the tokenizer `{}`, whose largest id is {}; set it to at \
                 least {ids}, or to 0 for the smallest multiple of {VOCAB_STEP} that fits",
                self.data().tokenizer,
                ids - 1,
            )));
        } else if given > ids {
            tracing::info!("model.vocab = {given} for {ids} ids; the others are never targets");
        }
        run.model().validate().context("the model cannot be built")?;
        Ok(run)
    }
}
