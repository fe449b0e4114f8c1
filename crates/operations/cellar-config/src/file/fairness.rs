//! The section `[fairness]`: how callers share the workers.

use super::Origin;
use anyhow::Result;
use rx::Fairness;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FairnessSection {
    user_percent: Option<Spanned<u8>>,
    volume_percent: Option<Spanned<u8>>,
    small_calls_percent: Option<Spanned<u8>>,
    verified_calls_percent: Option<Spanned<u8>>,
    anonymous_calls_percent: Option<Spanned<u8>>,
    stalled_calls: Option<Spanned<usize>>,
    new_clients: Option<Spanned<usize>>,
    waiting_calls: Option<Spanned<usize>>,
    waiting_calls_per_user: Option<Spanned<usize>>,
    #[serde(default)]
    weights: BTreeMap<String, Spanned<u32>>,
}

impl FairnessSection {
    /// Returns how the workers are shared, and the limits of waiting calls.
    pub(super) fn resolve(&self, origin: &Origin<'_>) -> Result<Fairness> {
        let default = Fairness::default();
        let percent = |value: &Option<Spanned<u8>>, key: &str, default: u8, least: u8, most: u8| {
            origin.bounded(value.as_ref(), key, default, least, most)
        };
        let user = percent(&self.user_percent, "fairness.user_percent", default.user_share_percent, 1, 100)?;
        let volume =
            percent(&self.volume_percent, "fairness.volume_percent", default.volume_share_percent, 1, 100)?;
        let small = percent(
            &self.small_calls_percent,
            "fairness.small_calls_percent",
            default.small_calls_percent,
            0,
            90,
        )?;
        let verified = percent(
            &self.verified_calls_percent,
            "fairness.verified_calls_percent",
            default.verified_calls_percent,
            0,
            45,
        )?;
        let anonymous = percent(
            &self.anonymous_calls_percent,
            "fairness.anonymous_calls_percent",
            default.anonymous_calls_percent,
            0,
            45,
        )?;
        let waiting = origin.bounded(
            self.waiting_calls.as_ref(),
            "fairness.waiting_calls",
            default.waiting_max,
            10,
            1_000_000,
        )?;
        let waiting_of_user = origin.bounded(
            self.waiting_calls_per_user.as_ref(),
            "fairness.waiting_calls_per_user",
            default.waiting_of_user_max,
            1,
            1_000_000,
        )?;
        let mut weights = std::collections::HashMap::new();
        for (name, weight) in &self.weights {
            let key = format!("fairness.weights.{name}");
            weights.insert(name.clone(), origin.bounded(Some(weight), &key, 100, 1, 10_000)?);
        }
        let count = |value: &Option<Spanned<usize>>, key: &str, default: usize, least: usize| {
            origin.bounded(value.as_ref(), key, default, least, 10_000)
        };
        Ok(Fairness {
            stalled_max: count(&self.stalled_calls, "fairness.stalled_calls", default.stalled_max, 0)?,
            strangers_max: count(&self.new_clients, "fairness.new_clients", default.strangers_max, 1)?,
            user_share_percent: user,
            volume_share_percent: volume,
            small_calls_percent: small,
            verified_calls_percent: verified,
            anonymous_calls_percent: anonymous,
            waiting_max: waiting,
            waiting_of_user_max: waiting_of_user,
            weights,
        })
    }
}
