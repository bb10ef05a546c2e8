//! Trainable tensors: what they are called, how they start, whether they decay.
//!
//! [`ParameterSpec`] is a parameter before anything is allocated; lists of them are the parameter
//! table and the basis of the memory estimate. [`Parameters`] makes a whole list real; layers then
//! take theirs by name.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use atpm_core::{Precision, activation_dtype};
use candle_core::{DType, Device, Tensor};

use crate::init::{self, Init};
use crate::{Error, Result, names};

/// One trainable tensor. Clones share storage, so a layer and the optimiser see the same numbers.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Its name in checkpoints and exports, such as `blocks.3.mixer.out_proj.weight`.
    pub name: String,
    /// f32 master value.
    pub value: Tensor,
    /// f32 gradient of the same shape; backward passes add into it. Empty in a model that is only read
    /// ([`crate::Decoder::for_inference`]).
    pub gradient: Tensor,
    /// Whether weight decay applies.
    pub decay: bool,
    /// See [`Parameter::factor`].
    rounded: Arc<OnceLock<Tensor>>,
}

impl Parameter {
    /// A parameter of this value; `gradient` has its shape, or none.
    pub fn new(name: impl Into<String>, value: Tensor, gradient: Tensor, decay: bool) -> Self {
        Self { name: name.into(), value, gradient, decay, rounded: Arc::default() }
    }

    /// What a product in `precision` reads: the value, or on a GPU that computes in bf16 a bf16 copy, made when it is
    /// first asked for. From then on whoever changes the value must change the copy, as the optimiser does.
    ///
    /// # Errors
    /// A device that refuses.
    pub fn factor(&self, precision: Precision) -> Result<&Tensor> {
        if activation_dtype(&self.value, precision) != DType::BF16 {
            return Ok(&self.value);
        }
        if self.rounded.get().is_none() {
            // Another thread may have been faster, with the same copy.
            let _ = self.rounded.set(atpm_core::rounded(&self.value)?);
        }
        Ok(self.rounded.get().unwrap_or(&self.value))
    }

    /// The bf16 copy, if there is one by now.
    pub fn rounded(&self) -> Option<&Tensor> {
        self.rounded.get()
    }
}

/// Sets every gradient to zero, in place.
///
/// # Errors
/// A device that refuses.
pub fn zero_gradients(parameters: &[Parameter]) -> Result<()> {
    for parameter in parameters {
        atpm_core::clear(&parameter.gradient)?;
    }
    Ok(())
}

/// A parameter on paper: nothing is allocated.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterSpec {
    /// Its name in checkpoints and exports.
    pub name: String,
    /// Its shape, row-major.
    pub shape: Vec<usize>,
    /// Whether weight decay applies.
    pub decay: bool,
    /// Its initial values.
    pub init: Init,
}

impl ParameterSpec {
    /// A parameter of this name and shape; the two decide about weight decay (see [`names`]).
    ///
    /// # Errors
    /// A name that belongs to no decay group.
    pub fn new(name: impl Into<String>, shape: impl Into<Vec<usize>>, init: Init) -> Result<Self> {
        let (name, shape) = (name.into(), shape.into());
        let decay = names::decays(&name, &shape)?;
        Ok(Self { name, shape, decay, init })
    }

    /// Elements of the tensor.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The parameter table as aligned plain text: name, copies, shape, elements, decay, initial values,
/// and the totals of both decay groups. What every block has alike is one line, `blocks.*.…`.
pub fn render_table(specs: &[ParameterSpec]) -> String {
    let mut rows: Vec<(String, &ParameterSpec, usize)> = Vec::new();
    for spec in specs {
        let name = without_index(&spec.name);
        let alike = |(other, first, _): &&mut (String, &ParameterSpec, usize)| {
            *other == name
                && (&first.shape, first.decay, &first.init) == (&spec.shape, spec.decay, &spec.init)
        };
        match rows.iter_mut().find(alike) {
            Some((_, _, copies)) => *copies += 1,
            None => rows.push((name, spec, 1)),
        }
    }
    let name_width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0).max("parameter".len());
    let mut text = format!(
        "{:name_width$} {:>6}  {:16} {:>11}  decay  init\n",
        "parameter", "copies", "shape", "elements"
    );
    for (name, spec, copies) in rows {
        let shape: Vec<_> = spec.shape.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            text,
            "{name:name_width$} {copies:>6}  {:16} {:>11}  {:5}  {}",
            format!("[{}]", shape.join(", ")),
            copies * spec.elements(),
            if spec.decay { "yes" } else { "no" },
            spec.init,
        );
    }
    let elements = |decay: bool| -> usize {
        specs.iter().filter(|spec| spec.decay == decay).map(ParameterSpec::elements).sum()
    };
    let (decayed, other) = (elements(true), elements(false));
    let _ = writeln!(text, "total {}: {decayed} with weight decay, {other} without", decayed + other);
    text
}

/// `blocks.*.rest` for `blocks.3.rest`; any other name as it is.
fn without_index(name: &str) -> String {
    match name.strip_prefix("blocks.").and_then(|rest| rest.split_once('.')) {
        Some((_, rest)) => format!("blocks.*.{rest}"),
        None => name.into(),
    }
}

/// Allocated parameters by name, until the layers have taken them.
#[derive(Debug)]
pub struct Parameters {
    by_name: BTreeMap<String, Parameter>,
}

impl Parameters {
    /// Allocates and initialises every parameter of the list, with zero gradients.
    ///
    /// # Errors
    /// Two parameters of one name, or a device that refuses.
    pub fn initialise(specs: &[ParameterSpec], seed: u64, dtype: DType, device: &Device) -> Result<Self> {
        Self::make(specs, |spec| {
            let value = init::tensor(&spec.init, &spec.shape, &spec.name, seed, dtype, device)?;
            Ok((value, Tensor::zeros(spec.shape.as_slice(), dtype, device)?))
        })
    }

    /// Allocates every parameter of the list for values that come from a file: nothing is drawn (all are zero), and
    /// there is no room for gradients.
    ///
    /// # Errors
    /// As [`Parameters::initialise`].
    pub fn blank(specs: &[ParameterSpec], device: &Device) -> Result<Self> {
        Self::make(specs, |spec| {
            let value = Tensor::zeros(spec.shape.as_slice(), DType::F32, device)?;
            // No driver gives no bytes.
            Ok((value, Tensor::zeros(0, DType::F32, &Device::Cpu)?))
        })
    }

    /// Value and gradient of each parameter by `tensors`.
    fn make(
        specs: &[ParameterSpec],
        tensors: impl Fn(&ParameterSpec) -> Result<(Tensor, Tensor)>,
    ) -> Result<Self> {
        let mut by_name = BTreeMap::new();
        for spec in specs {
            let (value, gradient) = tensors(spec)?;
            let parameter = Parameter::new(&spec.name, value, gradient, spec.decay);
            if by_name.insert(spec.name.clone(), parameter).is_some() {
                return Err(problem(&spec.name, "listed twice"));
            }
        }
        Ok(Self { by_name })
    }

    /// Hands out the parameter `prefix.name`.
    ///
    /// # Errors
    /// A name that was not listed, or is taken already.
    pub fn take(&mut self, prefix: &str, name: &str) -> Result<Parameter> {
        let name = format!("{prefix}.{name}");
        self.by_name.remove(&name).ok_or_else(|| problem(&name, "wanted by a layer, but not listed"))
    }

    /// Checks that every listed parameter has found its layer.
    ///
    /// # Errors
    /// The first one left over: it would count and decay, but never learn.
    pub fn finish(self) -> Result<()> {
        match self.by_name.keys().next() {
            Some(name) => Err(problem(name, "listed, but no layer uses it")),
            None => Ok(()),
        }
    }
}

fn problem(name: &str, problem: &str) -> Error {
    Error::Parameter { name: name.into(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> ParameterSpec {
        ParameterSpec::new(name, [4, 2], Init::Normal(1.0)).unwrap()
    }

    #[test]
    fn every_parameter_finds_exactly_one_layer() {
        let specs = [spec("a.x.weight"), spec("a.y.weight")];
        let mut parameters = Parameters::initialise(&specs, 0, DType::F32, &Device::Cpu).unwrap();
        parameters.take("a", "x.weight").unwrap();
        assert!(parameters.take("a", "x.weight").is_err());
        assert!(parameters.take("a", "z.weight").is_err());
        let left = parameters.finish().unwrap_err().to_string();
        assert!(left.contains("a.y.weight"), "{left}");
        let twice = [spec("a.x.weight"), spec("a.x.weight")];
        assert!(Parameters::initialise(&twice, 0, DType::F32, &Device::Cpu).is_err());
    }

    #[test]
    fn gradients_are_zeroed_where_they_lie() {
        let mut parameters =
            Parameters::initialise(&[spec("a.x.weight")], 0, DType::F32, &Device::Cpu).unwrap();
        let parameter = parameters.take("a", "x.weight").unwrap();
        let seen_elsewhere = parameter.gradient.clone();
        seen_elsewhere.one_set().unwrap();
        zero_gradients(&[parameter]).unwrap();
        assert_eq!(atpm_core::read_f32(&seen_elsewhere).unwrap(), vec![0.0; 8]);
    }

    #[test]
    fn the_table_folds_blocks_and_totals_both_groups() {
        let norm = |name: &str| ParameterSpec::new(name, [3], Init::Ones).unwrap();
        let specs = [spec("blocks.0.x.weight"), norm("a.norm.weight"), spec("blocks.11.x.weight")];
        let text = render_table(&specs);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1][..6], ["blocks.*.x.weight", "2", "[4,", "2]", "16", "yes"], "{text}");
        assert_eq!(lines[2], ["a.norm.weight", "1", "[3]", "3", "no", "ones"], "{text}");
        assert!(text.contains("total 19: 16 with weight decay, 3 without"), "{text}");
        assert_eq!(lines.len(), 4);
    }
}
