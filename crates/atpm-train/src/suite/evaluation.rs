//! What a trained model answers: on its own, token by token, and teacher-forced.
//!
//! Autoregressively a model reads the prompt and then what it gave itself; nothing of a sample past its prompt is
//! ever shown to it. Samples are read together with others whose prompts have the same length, so that no row is
//! filled up.

use std::collections::BTreeMap;

use atpm_core::Segments;
use atpm_data::synthetic::{Sample, Score, Split, Task, batch};
use atpm_model::{DecodeState, Decoder};
use candle_core::{D, Device, Tensor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::training::inputs::{Inputs, target_tokens};

/// Samples that are read together.
const ROWS: usize = 64;

/// Something that reads ids and says, at each of them, what should come next.
pub trait Reader {
    /// Forgets everything, and reads `rows` rows from now on.
    ///
    /// # Errors
    /// Whatever the model refuses.
    fn begin(&mut self, rows: usize) -> anyhow::Result<()>;

    /// Reads more `ids`, row after row and as many in each; gives the likeliest next id after each of them, in the
    /// same order.
    ///
    /// # Errors
    /// Whatever the model refuses.
    fn read(&mut self, ids: &[u32]) -> anyhow::Result<Vec<u32>>;
}

/// A decoder that reads with its own memory.
pub struct Decoding<'a> {
    model: &'a Decoder,
    state: DecodeState,
}

impl<'a> Decoding<'a> {
    /// A reader that has read nothing.
    ///
    /// # Errors
    /// A model without a decode path.
    pub fn new(model: &'a Decoder) -> anyhow::Result<Self> {
        Ok(Self { model, state: model.decode_state(1)? })
    }
}

impl Reader for Decoding<'_> {
    fn begin(&mut self, rows: usize) -> anyhow::Result<()> {
        self.state = self.model.decode_state(rows)?;
        Ok(())
    }

    fn read(&mut self, ids: &[u32]) -> anyhow::Result<Vec<u32>> {
        let rows = self.state.batch();
        let tokens = ids.len() / rows;
        let ids = Tensor::from_slice(ids, (rows, tokens), &Device::Cpu)?;
        let logits = self.model.logits(&ids, &Segments::continuous(rows, tokens), Some(&mut self.state))?;
        Ok(logits.argmax(D::Minus1)?.flatten_all()?.to_vec1()?)
    }
}

/// How a model does on one split of one task; of the mixture, the mean over its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SplitScore {
    /// Share of samples whose whole answer is right, autoregressively.
    pub exact_match: f64,
    /// Share of answer tokens that are right, autoregressively.
    pub token_accuracy: f64,
    /// Nats of an answer token, teacher-forced; null in the file where it is not finite, and then read as NaN.
    #[serde(deserialize_with = "number_or_nan")]
    pub cross_entropy: f64,
}

/// The score on one task.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TaskScore {
    /// The task.
    pub task: Task,
    /// The score.
    #[serde(flatten)]
    pub score: SplitScore,
}

/// Evaluates on the first `samples` samples of a split.
///
/// # Errors
/// Whatever the model refuses.
pub fn evaluate(
    model: &Decoder,
    task: Task,
    split: Split,
    seed: u64,
    samples: u64,
) -> anyhow::Result<SplitScore> {
    let samples: Vec<Sample> = (0..samples).map(|index| task.sample(split, seed, index)).collect();
    let given = answers(&mut Decoding::new(model)?, &samples)?;
    Ok(mean(&by_task(model, &samples, &given)?))
}

/// The score of each task that there are samples of, in the order of names; `given` is what [`answers`] gave.
///
/// # Errors
/// Whatever the model refuses.
pub fn by_task(model: &Decoder, samples: &[Sample], given: &[Vec<u32>]) -> anyhow::Result<Vec<TaskScore>> {
    let mut parts: BTreeMap<&str, (Score, Vec<Sample>)> = BTreeMap::new();
    for (sample, given) in samples.iter().zip(given) {
        let (score, own) = parts.entry(sample.task.name()).or_default();
        score.add(&sample.targets, given);
        own.push(sample.clone());
    }
    let scored = |(score, own): (Score, Vec<Sample>)| {
        let cross_entropy = cross_entropy(model, &own)?;
        let (exact_match, token_accuracy) = (score.exact_match(), score.token_accuracy());
        let score = SplitScore { exact_match, token_accuracy, cross_entropy };
        Ok(TaskScore { task: own[0].task, score })
    };
    parts.into_values().map(scored).collect()
}

/// The mean over tasks.
pub fn mean(scores: &[TaskScore]) -> SplitScore {
    let share = 1.0 / scores.len() as f64;
    let of = |number: fn(&SplitScore) -> f64| scores.iter().map(|part| share * number(&part.score)).sum();
    SplitScore {
        exact_match: of(|score| score.exact_match),
        token_accuracy: of(|score| score.token_accuracy),
        cross_entropy: of(|score| score.cross_entropy),
    }
}

/// Lets `reader` answer on its own: what it gives at each position of each sample.
///
/// # Errors
/// Whatever the reader refuses.
pub fn answers(reader: &mut impl Reader, samples: &[Sample]) -> anyhow::Result<Vec<Vec<u32>>> {
    let mut by_prompt: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, sample) in samples.iter().enumerate() {
        by_prompt.entry(sample.prompt).or_default().push(index);
    }
    let mut all = vec![Vec::new(); samples.len()];
    for indices in by_prompt.values().flat_map(|alike| alike.chunks(ROWS)) {
        let alike: Vec<&Sample> = indices.iter().map(|&index| &samples[index]).collect();
        for (&index, given) in indices.iter().zip(answers_of_one_length(reader, &alike)?) {
            all[index] = given;
        }
    }
    Ok(all)
}

/// What `reader` gives at each position of samples whose prompts have one length.
fn answers_of_one_length(reader: &mut impl Reader, samples: &[&Sample]) -> anyhow::Result<Vec<Vec<u32>>> {
    reader.begin(samples.len())?;
    let prompts: Vec<u32> = samples.iter().flat_map(|sample| sample.prompt()).copied().collect();
    let length = prompts.len() / samples.len();
    let mut given: Vec<Vec<u32>> = reader.read(&prompts)?.chunks(length).map(<[u32]>::to_vec).collect();
    let longest = samples.iter().map(|sample| sample.ids.len()).max().unwrap_or(length);
    for _ in length..longest {
        let own: Vec<u32> = given.iter().filter_map(|row| row.last()).copied().collect();
        for (row, next) in given.iter_mut().zip(reader.read(&own)?) {
            row.push(next);
        }
    }
    Ok(given)
}

/// Nats of an answer token, teacher-forced.
///
/// # Errors
/// Whatever the model refuses.
pub fn cross_entropy(model: &Decoder, samples: &[Sample]) -> anyhow::Result<f64> {
    let (mut sum, mut tokens) = (0.0, 0);
    for samples in samples.chunks(ROWS) {
        let batch = batch(samples);
        let inputs = Inputs::of(&batch)?;
        let losses = model.evaluate(&inputs.ids, &inputs.targets, &inputs.segments)?;
        sum += atpm_core::read_f32(&losses)?.into_iter().map(f64::from).sum::<f64>();
        tokens += target_tokens(&batch);
    }
    Ok(sum / tokens as f64)
}

/// JSON has no number for what is not finite: it is written as null.
///
/// # Errors
/// Neither a number nor null.
pub(super) fn number_or_nan<'de, S: Deserializer<'de>>(source: S) -> Result<f64, S::Error> {
    Ok(Option::deserialize(source)?.unwrap_or(f64::NAN))
}
