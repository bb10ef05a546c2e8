//! Every key of a run's settings: type, range, default, meaning. The only place where a default stands.

use std::fmt::Write as _;

use toml::Value;

use self::Default::{Absent, Of, Required};
use self::Kind::{Choice, Count, Fraction, Logit, NonNegative, Positive, Switch, Text, Texts, Unit};

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its section, empty for the top level.
    pub section: &'static str,
    /// Its name in the section.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// What holds without it.
    pub default: Default,
    /// One sentence with the unit.
    pub help: &'static str,
}

/// What holds where a key is not given.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    /// This value, in TOML.
    Of(&'static str),
    /// Nothing, which has this meaning.
    Absent(&'static str),
    /// The user must give it.
    Required,
}

/// Types and ranges of values.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A whole number of at least this.
    Count(u64),
    /// A finite number above 0.
    Positive,
    /// A finite number of at least 0.
    NonNegative,
    /// A number from 0 up to, but not including, 1.
    Fraction,
    /// A number from 0 to 1, both included.
    Unit,
    /// Any finite number.
    Logit,
    /// `true` or `false`.
    Switch,
    /// A string.
    Text,
    /// A string or a list of strings.
    Texts,
    /// One of these strings.
    Choice(&'static [&'static str]),
}

impl Kind {
    /// The type in words.
    pub fn words(self) -> String {
        match self {
            Count(0) => "whole number".into(),
            Count(least) => format!("whole number ≥ {least}"),
            Positive => "number > 0".into(),
            NonNegative => "number ≥ 0".into(),
            Fraction => "number in [0, 1)".into(),
            Unit => "number in [0, 1]".into(),
            Logit => "number".into(),
            Switch => "true or false".into(),
            Text => "string".into(),
            Texts => "string or list of strings".into(),
            Choice(names) => names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(" or "),
        }
    }

    /// The value in its normal form (whole numbers where a number is asked for become floats, a lone string
    /// becomes a list), or `None` if it is not of this kind.
    pub fn normalise(self, value: Value) -> Option<Value> {
        let number = match value {
            Value::Integer(whole) => Some(whole as f64),
            Value::Float(number) => Some(number),
            _ => None,
        };
        let in_range = |range: fn(f64) -> bool| {
            number.filter(|number| number.is_finite() && range(*number)).map(Value::Float)
        };
        match (self, value) {
            (Count(least), Value::Integer(whole)) => {
                u64::try_from(whole).is_ok_and(|whole| whole >= least).then_some(Value::Integer(whole))
            }
            (Positive, _) => in_range(|number| number > 0.0),
            (NonNegative, _) => in_range(|number| number >= 0.0),
            (Fraction, _) => in_range(|number| (0.0..1.0).contains(&number)),
            (Unit, _) => in_range(|number| (0.0..=1.0).contains(&number)),
            (Logit, _) => in_range(|_| true),
            (Switch, value @ Value::Boolean(_)) | (Text, value @ Value::String(_)) => Some(value),
            (Texts, value @ Value::String(_)) => Some(Value::Array(vec![value])),
            (Texts, Value::Array(values)) => values.iter().all(Value::is_str).then_some(Value::Array(values)),
            (Choice(names), Value::String(name)) => {
                names.contains(&name.as_str()).then_some(Value::String(name))
            }
            _ => None,
        }
    }
}

const fn key(
    section: &'static str,
    name: &'static str,
    kind: Kind,
    default: Default,
    help: &'static str,
) -> Key {
    Key { section, name, kind, default, help }
}

/// The sections, in the order of the documentation; the first is the top level.
pub const SECTIONS: &[&str] =
    &["", "model", "data", "train", "optimizer", "schedule", "eval", "checkpoint", "report"];

/// All keys, section by section.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("", "seed", Count(0), Of("0"), "Seed of the initialisation and of the data order."),
    key("", "device", Text, Of("\"auto\""), "Where to compute: `auto` (the CPU), `cpu`, `cuda` or `cuda:N`; the last two in a build with CUDA."),
    key("", "threads", Count(0), Of("0"), "CPU threads; 0 = all cores. The results do not depend on it."),
    key("", "run_dir", Text, Absent("`runs/` and the config file's name"), "Folder of the run: config, metrics, checkpoints, log."),

    key("model", "kind", Choice(&["atpm", "transformer", "lstm", "ntm"]), Of("\"atpm\""), "How blocks look back in time: the ATPM memory, softmax attention with rotary positions, an LSTM or a Neural Turing machine (both without MLP); see docs/suite.md."),
    key("model", "vocab", Count(0), Of("0"), "Rows of the embedding, in tokens; 0 = the tokenizer's size rounded up to a multiple of 64."),
    key("model", "d_model", Count(1), Of("1024"), "Width of the residual stream, in channels."),
    key("model", "layers", Count(1), Of("12"), "Blocks of mixer and SwiGLU."),
    key("model", "heads", Count(1), Of("8"), "Mixer heads, each with a state of its own."),
    key("model", "address", Count(1), Of("64"), "Address size S of a head, in channels."),
    key("model", "key", Count(1), Of("64"), "Key block K of the entity, in channels a head."),
    key("model", "value", Count(1), Of("64"), "Value block V of the entity, in channels a head."),
    key("model", "rank", Count(1), Of("16"), "Transport rank R of a head."),
    key("model", "mlp", Count(1), Of("2816"), "Inner size of the SwiGLU, in channels."),
    key("model", "short_conv", Count(0), Of("4"), "Width of the short causal convolution, in tokens; 0 = off."),
    key("model", "query_norm", Switch, Of("true"), "Whether the query is L2-normalised before the recall correction."),
    key("model", "tied", Switch, Of("true"), "Whether the output projection is the embedding."),
    key("model", "hidden", Count(1), Absent("128"), "Hidden units of a Neural Turing machine's LSTM; this and the next two belong to `kind = \"ntm\"`."),
    key("model", "slots", Count(3), Absent("128"), "Slots of a Neural Turing machine's memory."),
    key("model", "slot_width", Count(1), Absent("32"), "Numbers in a slot."),
    key("model", "norm_eps", Positive, Of("1e-6"), "Added to the mean square in the RMS norms of the residual stream."),
    key("model", "rho", Unit, Absent("learned"), "Pins the transport controller ρ to this value."),
    key("model", "lambda", Unit, Absent("learned"), "Pins the recall controller λ to this value."),
    key("model", "tie_beta", Switch, Of("false"), "Whether key and value block share one write strength β."),
    key("model", "rho_logit", Logit, Of("0.0"), "Initial logit of ρ; 0 is the neutral 0.5."),
    key("model", "lambda_logit", Logit, Of("0.0"), "Initial logit of λ; 0 is the neutral 0.5."),
    key("model", "beta_logit", Logit, Of("0.0"), "Initial logit of both β; 0 is 0.5."),
    key("model", "half_life", Positive, Absent("drawn for each head, as Gated DeltaNet does"), "Half-life of the state of every memory head at the start, in tokens. Drawn heads last from a token to hundreds, which suits many heads and leaves one to chance."),
    key("model", "embedding_std", Positive, Absent("0.02"), "Standard deviation of the embedding table at the start; an output projection of its own (`tied = false`) keeps 0.02. ATPM models up to width 256 learned faster from `1/√d_model`."),
    key("model", "activation_checkpointing", Switch, Of("false"), "Whether blocks recompute their inside in the backward pass: less memory, a third more work."),

    key("data", "train", Texts, Required, "Training shards: parquet files, folders or globs, relative to the current folder."),
    key("data", "val", Texts, Of("[]"), "Validation shards, as `train`; needed where `eval.every` is not 0."),
    key("data", "tokenizer", Text, Of("\"gpt2\""), "`gpt2`, `bytes`, `bpe:N` (a BPE of N ids, trained on the training shards when the run begins and kept with it), or the path of a tokenizer.json."),
    key("data", "bos", Switch, Of("false"), "Whether each document begins with the tokenizer's beginning-of-text token."),
    key("data", "eos", Switch, Of("true"), "Whether each document ends with the tokenizer's end-of-text token."),
    key("data", "text_column", Text, Of("\"text\""), "The column that holds the documents; no other column is read."),
    key("data", "lanes", Count(1), Of("8"), "Independent streams that the row groups are dealt to; row j, counted over all batches of the run, comes from lane j mod lanes."),
    key("data", "shuffle_window", Count(1), Of("1000"), "Documents that are shuffled together inside a row group."),
    key("data", "on_bad_shard", Choice(&["fail", "skip"]), Of("\"fail\""), "What a shard that cannot be read does to the run."),
    key("data", "invalid_utf8", Choice(&["fail", "replace"]), Of("\"fail\""), "What text that is not UTF-8 does: stop, or become U+FFFD (counted)."),
    key("data", "prefetch", Count(0), Of("4"), "Batches that are tokenized ahead of training, at most 1024."),

    key("train", "steps", Count(1), Of("1000"), "Steps that the schedule spans."),
    key("train", "stop_after", Count(1), Absent("train all steps"), "Ends the run cleanly after this step; the schedule still spans `steps`."),
    key("train", "rows", Count(1), Of("8"), "Rows of a micro-batch."),
    key("train", "tokens", Count(1), Of("512"), "Tokens of a row."),
    key("train", "accumulate", Count(1), Of("1"), "Micro-batches of a step; their losses share one mean over all target tokens."),
    key("train", "z_loss", NonNegative, Of("0.0"), "Weight of the squared log-partition in each token's loss; 0 = off."),
    key("train", "max_skipped", Count(0), Of("3"), "Steps in a row that may be skipped for a loss or gradient that is not finite; one more stops the run."),
    key("train", "dtype", Choice(&["f32", "bf16"]), Of("\"f32\""), "How matrix products are computed. On a CPU their operands are rounded, which needs AVX-512 BF16 (others go on in f32 and say so); on CUDA activations are stored in bf16 too."),

    key("optimizer", "lr", Positive, Of("1e-3"), "Peak learning rate of AdamW."),
    key("optimizer", "beta1", Fraction, Of("0.9"), "Decay of the first moment."),
    key("optimizer", "beta2", Fraction, Of("0.95"), "Decay of the second moment."),
    key("optimizer", "eps", Positive, Of("1e-8"), "Added to the root of the second moment."),
    key("optimizer", "weight_decay", NonNegative, Of("0.1"), "Decoupled weight decay of the matrices; norms, biases, A_log, dt_bias and the embedding have none."),
    key("optimizer", "clip", NonNegative, Of("1.0"), "Largest global gradient norm; 0 = no clipping."),

    key("schedule", "kind", Choice(&["cosine", "wsd"]), Of("\"cosine\""), "How the learning rate falls: along a cosine, or held and then linearly (warmup, stable, decay)."),
    key("schedule", "warmup", Count(0), Of("100"), "Steps of linear warm-up."),
    key("schedule", "final_ratio", Unit, Of("0.1"), "Learning rate of the last step, as a share of the peak. Without effect where nothing decays: wsd with `decay_steps = 0`."),
    key("schedule", "decay_steps", Count(0), Of("0"), "Steps of the decay at the end (wsd only); 0: none, the rate stays at its peak."),

    key("eval", "every", Count(0), Of("0"), "Steps between evaluations; 0 = never. Otherwise there is one at the end, too."),
    key("eval", "batches", Count(0), Of("0"), "Batches of an evaluation; 0 = all validation shards once."),
    key("eval", "rows", Count(1), Of("8"), "Rows of an evaluation batch; their tokens are `train.tokens`."),

    key("checkpoint", "every", Count(0), Of("0"), "Steps between checkpoints; 0 = only at the end."),
    key("checkpoint", "keep_last", Count(1), Of("2"), "Newest checkpoints that are kept."),
    key("checkpoint", "keep_every", Count(0), Of("0"), "Checkpoints of steps divisible by this are kept for good; 0 = none."),

    key("report", "log_every", Count(1), Of("10"), "Steps between progress lines where standard error is no terminal."),
    key("report", "telemetry_every", Count(0), Of("100"), "Steps between records of the mixers' state per layer; 0 = never."),
];

/// The key of this name in this section.
pub fn find(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.section == section && key.name == name)
}

impl Key {
    /// `section.name`, or the name alone at the top level.
    pub fn path(&self) -> String {
        if self.section.is_empty() { self.name.into() } else { format!("{}.{}", self.section, self.name) }
    }
}

/// The documentation's table of one section, in Markdown.
pub fn table(section: &str) -> String {
    let mut table = String::from("| key | type | default | meaning |\n|---|---|---|---|\n");
    for key in KEYS.iter().filter(|key| key.section == section) {
        let default = match key.default {
            Of(text) => format!("`{text}`"),
            Absent(meaning) => format!("not set: {meaning}"),
            Required => "**required**".into(),
        };
        let _ = writeln!(table, "| `{}` | {} | {default} | {} |", key.name, key.kind.words(), key.help);
    }
    table
}
