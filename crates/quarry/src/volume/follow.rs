//! Waiting for a volume, shown: a spinner in a terminal, one line a change elsewhere.
//!
//! What is shown is what the object says. Whether it is done is decided by `stage`, without I/O.

use crate::{connect::Cluster, output, sanitize};
use anyhow::{anyhow, bail};
use futures::{StreamExt, TryStreamExt};
use indicatif::{ProgressBar, ProgressStyle};
use kube::{
    Api,
    runtime::{WatchStreamExt, watcher},
};
use quarry_api::{Volume, volume::Phase};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Available,
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    Going(String),
    Reached(String),
    /// It will not get there by itself.
    Stuck(String),
}

/// How far the volume is on its way to the goal. `None`: it does not exist.
pub fn stage(volume: Option<&Volume>, goal: Goal) -> Stage {
    let Some(volume) = volume else {
        return match goal {
            Goal::Available => Stage::Stuck("was deleted meanwhile".into()),
            Goal::Gone => Stage::Reached("is gone, with its storage".into()),
        };
    };
    let said =
        volume.ready().and_then(|ready| ready.message.as_deref()).filter(|text| !text.is_empty());
    let told =
        |phase: &str| said.map_or_else(|| phase.to_owned(), |said| format!("{phase}: {said}"));
    match (volume.phase(), goal) {
        (None, Goal::Available) => Stage::Going("waits for the operator to see it".into()),
        // The operator has not seen the deletion yet: its last word is not about it.
        (None | Some(Phase::Available | Phase::Failed), Goal::Gone) => {
            Stage::Going("is being deleted".into())
        }
        (Some(Phase::Available), Goal::Available)
            if volume.metadata.deletion_timestamp.is_none() =>
        {
            let device = volume
                .status
                .as_ref()
                .and_then(|status| status.device_name.as_deref())
                .map_or_else(String::new, |device| format!(" on /dev/{device}"));
            Stage::Reached(format!("is Available{device}"))
        }
        (Some(phase @ Phase::Failed), Goal::Available) => {
            Stage::Stuck(format!("is {}", told(phase.as_str())))
        }
        (
            Some(phase @ (Phase::Available | Phase::Pending | Phase::Terminating)),
            Goal::Available,
        )
        | (Some(phase @ (Phase::Pending | Phase::Terminating)), Goal::Gone) => {
            Stage::Going(format!("is {}", told(phase.as_str())))
        }
    }
}

/// Waits until the goal is reached; an error when it cannot be, or when the time is over.
pub async fn follow(
    cluster: &Cluster,
    volume: &Volume,
    goal: Goal,
    limit: Duration,
) -> anyhow::Result<String> {
    Follow::new(cluster, volume, goal, limit).run(None).await
}

/// The same after something was asked of the volume: the status from before counts only if it stays.
pub async fn follow_change(
    cluster: &Cluster,
    volume: &Volume,
    goal: Goal,
    limit: Duration,
) -> anyhow::Result<String> {
    Follow::new(cluster, volume, goal, limit).run(Some(tokio::time::Instant::now() + GRACE)).await
}

/// How long an operator may take to look at a volume again.
const GRACE: Duration = Duration::from_secs(5);

struct Follow<'a> {
    cluster: &'a Cluster,
    volume: &'a Volume,
    goal: Goal,
    limit: Duration,
    view: View,
}

impl<'a> Follow<'a> {
    fn new(cluster: &'a Cluster, volume: &'a Volume, goal: Goal, limit: Duration) -> Self {
        Follow {
            cluster,
            volume,
            goal,
            limit,
            view: View::new(volume.metadata.name.as_deref().unwrap_or_default()),
        }
    }

    async fn run(mut self, grace: Option<tokio::time::Instant>) -> anyhow::Result<String> {
        let name = self.view.name.clone();
        let api: Api<Volume> = Api::all(self.cluster.client.clone());
        let mut events =
            watcher(api, watcher::Config::default().fields(&format!("metadata.name={name}")))
                .default_backoff()
                .boxed();
        let deadline = tokio::time::Instant::now() + self.limit;
        let mut grace = grace;
        let mut seen = false;
        let mut current = Some(self.volume.clone());
        loop {
            let until = grace.map_or(deadline, |grace| grace.min(deadline));
            let event = match tokio::time::timeout_at(until, events.try_next()).await {
                Err(_) if grace.take().is_some_and(|grace| grace < deadline) => None,
                Err(_) => {
                    let last = self.view.end();
                    bail!(
                        "gave up waiting after {}: volume {name} {last} (`quarry explain volume/{name}` tells every check, --timeout waits longer)",
                        seconds(self.limit)
                    );
                }
                Ok(Ok(None)) => bail!(
                    "the API ended the watch of volume {name}; `quarry explain volume/{name}` tells its state"
                ),
                Ok(Err(error)) => {
                    self.view.show(&format!("cannot be watched now, trying again: {error}"));
                    continue;
                }
                Ok(Ok(event)) => event,
            };
            match event {
                None => {}
                Some(watcher::Event::Init) => {
                    seen = false;
                    continue;
                }
                Some(watcher::Event::InitDone) if seen => continue,
                Some(watcher::Event::InitDone | watcher::Event::Delete(_)) => current = None,
                Some(watcher::Event::InitApply(found) | watcher::Event::Apply(found)) => {
                    seen = true;
                    // Another volume of the same name is not the one that is waited for.
                    current =
                        Some(found).filter(|found| found.metadata.uid == self.volume.metadata.uid);
                }
            }
            if grace.is_some()
                && current.as_ref().is_some_and(|current| current.status == self.volume.status)
            {
                self.view.show("waits for the operator to see it");
                continue;
            }
            grace = None;
            match stage(current.as_ref(), self.goal) {
                Stage::Going(text) => self.view.show(&text),
                Stage::Reached(text) => {
                    let took = self.view.started.elapsed();
                    self.view.end();
                    return Ok(format!("volume {name} {text} ({})", seconds(took)));
                }
                Stage::Stuck(text) => {
                    self.view.end();
                    return Err(anyhow!("volume {name} {text}"));
                }
            }
        }
    }
}

pub fn seconds(time: Duration) -> String {
    match time.as_millis() {
        millis @ ..1000 => format!("{millis} ms"),
        millis @ 1000..10_000 => format!("{:.1} s", millis as f64 / 1000.0),
        _ => format!("{} s", time.as_secs()),
    }
}

/// What the person sees meanwhile, on standard error.
struct View {
    name: String,
    started: Instant,
    last: String,
    spinner: Option<ProgressBar>,
}

impl View {
    fn new(name: &str) -> Self {
        let spinner = output::is_interactive().then(|| {
            let style = ProgressStyle::with_template("{spinner:.cyan} {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            let bar = ProgressBar::new_spinner().with_style(style);
            bar.enable_steady_tick(Duration::from_millis(80));
            bar
        });
        View {
            name: name.to_owned(),
            started: Instant::now(),
            last: "was not seen".into(),
            spinner,
        }
    }

    fn show(&mut self, text: &str) {
        if text == self.last {
            return;
        }
        let line = format!("{:>7}  volume {} {text}", seconds(self.started.elapsed()), self.name);
        self.last = text.to_owned();
        match &self.spinner {
            Some(spinner) => {
                spinner.println(sanitize::line(&line));
                spinner.set_message(
                    sanitize::line(&format!("volume {} {text}", self.name)).into_owned(),
                );
            }
            None => output::note(&line),
        }
    }

    /// Takes the spinner away; what was shown last.
    fn end(&mut self) -> String {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
        self.last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn volume(status: Value) -> Volume {
        serde_json::from_value(json!({
            "apiVersion": "storage.metalk8s.scality.com/v1alpha1", "kind": "Volume", "metadata": {"name": "v"},
            "spec": {"nodeName": "n", "storageClassName": "c", "sparseLoopDevice": {"size": "1Gi"}}, "status": status,
        }))
        .unwrap()
    }

    fn ready(phase: &str, message: Option<&str>) -> Volume {
        volume(
            json!({"phase": phase, "deviceName": "loop3", "conditions": [{"type": "Ready", "status": "Unknown", "message": message}]}),
        )
    }

    #[test]
    fn the_way_to_available_is_told_in_the_objects_own_words() {
        assert_eq!(
            stage(Some(&volume(json!({}))), Goal::Available),
            Stage::Going("waits for the operator to see it".into())
        );
        assert_eq!(
            stage(Some(&ready("Pending", Some("being prepared"))), Goal::Available),
            Stage::Going("is Pending: being prepared".into())
        );
        assert_eq!(
            stage(Some(&ready("Available", None)), Goal::Available),
            Stage::Reached("is Available on /dev/loop3".into())
        );
        assert_eq!(
            stage(Some(&ready("Failed", Some("no space"))), Goal::Available),
            Stage::Stuck("is Failed: no space".into())
        );
        assert_eq!(stage(None, Goal::Available), Stage::Stuck("was deleted meanwhile".into()));
    }

    #[test]
    fn a_deletion_ends_only_when_the_object_is_gone() {
        for phase in ["Available", "Failed", "Pending", "Terminating"] {
            assert!(
                matches!(stage(Some(&ready(phase, None)), Goal::Gone), Stage::Going(_)),
                "{phase}"
            );
        }
        assert!(matches!(stage(None, Goal::Gone), Stage::Reached(_)));
    }

    #[test]
    fn times_read_well() {
        assert_eq!(
            [312, 1_250, 65_000].map(|ms| seconds(Duration::from_millis(ms))),
            ["312 ms", "1.2 s", "65 s"]
        );
    }
}
