//! What a step does with its gradients: their norm, and the update.

use atpm_core::optim::adamw;
use candle_core::DType;

use super::{Case, Cases, Work, pass, size};

/// The optimiser of what is measured: its speed depends on none of these.
pub(in crate::bench) const ADAMW: adamw::Config = adamw::Config {
    lr: 1e-4,
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-8,
    weight_decay: 0.1,
    grad_scale: 1.0,
    step: 1,
};

impl Cases<'_> {
    /// All parameters as one tensor: the work does not depend on how they are cut.
    pub(super) fn adamw(&mut self) -> anyhow::Result<Case> {
        let count = self.parameters()?;
        let parameter = self.wide(&[count], 0.02)?;
        let gradient = self.wide(&[count], 0.01)?;
        let (m, v) = (parameter.zeros_like()?, parameter.zeros_like()?);
        // In a model a few parameters have no copy: norms, controllers.
        let copied = self.activations == DType::BF16;
        let rounded = if copied { Some(atpm_core::rounded(&parameter)?) } else { None };
        let bytes = 7 * size(&parameter) + rounded.as_ref().map_or(0, size);
        let update = move || {
            let (gradient, rounded) = (&gradient, rounded.as_ref());
            let member =
                adamw::Member { parameter: &parameter, m: &m, v: &v, gradient, decays: true, rounded };
            Ok(adamw::update_all(&ADAMW, &[member])?)
        };
        Ok(Case {
            name: "adamw",
            forward: None,
            backward: pass(1, Work::memory(bytes), update),
            reference: None,
        })
    }

    pub(super) fn squared_norm(&mut self) -> anyhow::Result<Case> {
        let count = self.parameters()?;
        let gradient = self.wide(&[count], 0.01)?;
        let bytes = size(&gradient);
        let measure = move || Ok(adamw::squared_norm(&gradient).map(drop)?);
        Ok(Case {
            name: "gradient norm",
            forward: None,
            backward: pass(1, Work::memory(bytes), measure),
            reference: None,
        })
    }

    fn parameters(&self) -> anyhow::Result<usize> {
        Ok(atpm_model::specs(self.model)?.iter().map(atpm_model::ParameterSpec::elements).sum())
    }
}
