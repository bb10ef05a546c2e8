//! A Neural Turing machine as a layer inside a policy, trained end to end by policy gradients.
//!
//! The world is a T-maze: at the first step a signal says which way the reward lies, then comes a corridor in which nothing is
//! to be seen, and at the junction the agent must turn left or right. Whoever does not remember is right half of the time.
//!
//! The policy is observation → machine → logits of two actions. The machine is a [`Layer`] like any other: `forward`, then
//! `backward` with the gradient of the logits, which adds to the parameters' gradients and gives that of the observations, for
//! whatever stands before it.
//!
//! ```text
//! cargo run --release -p atpm-model --example ntm_layer
//! ```

use std::io::Write;

use atpm_core::Segments;
use atpm_core::optim::adamw;
use atpm_core::testing::Random;
use atpm_model::ntm::{Ntm, NtmConfig};
use atpm_model::{Layer, Result, zero_gradients};
use candle_core::{Device, Tensor};

/// Episodes of an update.
const EPISODES: usize = 16;
/// Steps of the corridor between signal and junction.
const CORRIDOR: usize = 6;
const STEPS: usize = CORRIDOR + 2;
/// What is seen: signal left, signal right, junction.
const SEEN: usize = 3;
const ACTIONS: usize = 2;
/// What an agent gets that does not remember; the baseline of the policy gradient.
const CHANCE: f64 = 0.5;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (before, after) = learn(300)?;
    writeln!(std::io::stdout(), "reward of an episode: {before:.2} at first, {after:.2} in the end")?;
    Ok(())
}

/// Trains for so many updates; the mean reward of the first and of the last twenty.
fn learn(updates: u64) -> Result<(f64, f64)> {
    let sizes = NtmConfig { hidden: 16, slots: 8, width: 8, ..NtmConfig::new(SEEN, ACTIONS) };
    let policy = Ntm::new(&sizes, 0)?;
    let parameters = policy.parameters();
    let moments = |_| parameters.iter().map(|p| Ok(p.value.zeros_like()?)).collect::<Result<Vec<_>>>();
    let (m, v) = (moments(1)?, moments(2)?);
    let mut random = Random::new(7);
    let mut rewards = Vec::new();
    for step in 1..=updates {
        zero_gradients(&parameters)?;
        rewards.push(one_update(&policy, &mut random)?);
        for ((parameter, m), v) in parameters.iter().zip(&m).zip(&v) {
            let (lr, beta1, beta2, eps) = (1e-2, 0.9, 0.99, 1e-8);
            let config = adamw::Config { lr, beta1, beta2, eps, weight_decay: 0.0, grad_scale: 1.0, step };
            adamw::update(&config, &parameter.value, m, v, &parameter.gradient)?;
        }
    }
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    Ok((mean(&rewards[..20]), mean(&rewards[rewards.len() - 20..])))
}

/// Plays [`EPISODES`] episodes side by side and adds the policy's gradient; their mean reward.
fn one_update(policy: &Ntm, random: &mut Random) -> Result<f64> {
    let goals: Vec<usize> = (0..EPISODES).map(|_| random.below(ACTIONS)).collect();
    let mut seen = vec![0f32; EPISODES * STEPS * SEEN];
    for (episode, &goal) in goals.iter().enumerate() {
        let at = |step: usize, channel: usize| (episode * STEPS + step) * SEEN + channel;
        seen[at(0, goal)] = 1.0;
        seen[at(STEPS - 1, 2)] = 1.0;
    }
    let seen = Tensor::from_vec(seen, (EPISODES, STEPS, SEEN), &Device::Cpu)?;
    // Every row is one episode: the memory is empty at its first step.
    let episodes = Segments::from_starts(STEPS, vec![vec![0]; EPISODES])?;
    let (logits, saved) = policy.forward(&seen, &episodes)?;
    let logits = logits.to_vec3::<f32>()?;

    let mut d_logits = vec![0f32; EPISODES * STEPS * ACTIONS];
    let mut total = 0.0;
    for (episode, &goal) in goals.iter().enumerate() {
        let at_junction = &logits[episode][STEPS - 1];
        let left = 1.0 / (1.0 + (f64::from(at_junction[1]) - f64::from(at_junction[0])).exp());
        let action = usize::from(random.unit() > left);
        let reward = f64::from(u8::from(action == goal));
        total += reward;
        // REINFORCE: the gradient of −(reward − baseline) ln p(action).
        for (choice, p) in [left, 1.0 - left].into_iter().enumerate() {
            let taken = f64::from(u8::from(choice == action));
            let d = (reward - CHANCE) * (p - taken) / EPISODES as f64;
            d_logits[(episode * STEPS + STEPS - 1) * ACTIONS + choice] = d as f32;
        }
    }
    let d_logits = Tensor::from_vec(d_logits, (EPISODES, STEPS, ACTIONS), &Device::Cpu)?;
    policy.backward(&seen, saved, &d_logits, &episodes)?;
    Ok(total / EPISODES as f64)
}

#[test]
fn the_policy_learns_to_remember_the_signal() {
    let (before, after) = learn(300).unwrap();
    assert!((0.3..0.7).contains(&before), "chance at first: {before}");
    assert!(after > 0.9, "the signal is remembered in the end: {after}");
}
