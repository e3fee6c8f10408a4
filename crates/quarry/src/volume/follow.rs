//! Waiting for a volume: a spinner in a terminal, one line per change elsewhere.
//!
//! What is printed is the status of the object. Whether it is done is decided by `stage`, without I/O.

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
    Deleted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    Waiting(String),
    Reached(String),
    /// It does not get there without intervention.
    Failed(String),
}

/// Whether the volume has reached the goal. `None`: it does not exist.
pub fn stage(volume: Option<&Volume>, goal: Goal) -> Stage {
    let Some(volume) = volume else {
        return match goal {
            Goal::Available => Stage::Failed("was deleted meanwhile".into()),
            Goal::Deleted => Stage::Reached("is deleted, with its storage".into()),
        };
    };
    let message =
        volume.ready().and_then(|ready| ready.message.as_deref()).filter(|text| !text.is_empty());
    let text = |phase: &str| {
        message.map_or_else(|| phase.to_owned(), |message| format!("{phase}: {message}"))
    };
    match (volume.phase(), goal) {
        (None, Goal::Available) => Stage::Waiting("waits for the operator".into()),
        // The operator has not seen the deletion yet: its last message is about something else.
        (None | Some(Phase::Available | Phase::Failed), Goal::Deleted) => {
            Stage::Waiting("is being deleted".into())
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
            Stage::Failed(format!("is {}", text(phase.as_str())))
        }
        (
            Some(phase @ (Phase::Available | Phase::Pending | Phase::Terminating)),
            Goal::Available,
        )
        | (Some(phase @ (Phase::Pending | Phase::Terminating)), Goal::Deleted) => {
            Stage::Waiting(format!("is {}", text(phase.as_str())))
        }
    }
}

/// Waits until the goal is reached; an error when it cannot be, or after the time limit.
pub async fn follow(
    cluster: &Cluster,
    volume: &Volume,
    goal: Goal,
    limit: Duration,
) -> anyhow::Result<String> {
    Follow::new(cluster, volume, goal, limit).run(None).await
}

/// The same after a change of the volume: a status from before the change counts only if it stays.
pub async fn follow_change(
    cluster: &Cluster,
    volume: &Volume,
    goal: Goal,
    limit: Duration,
) -> anyhow::Result<String> {
    Follow::new(cluster, volume, goal, limit).run(Some(tokio::time::Instant::now() + GRACE)).await
}

/// How long an operator may take to reconcile a changed volume.
const GRACE: Duration = Duration::from_secs(5);

struct Follow<'a> {
    cluster: &'a Cluster,
    volume: &'a Volume,
    goal: Goal,
    limit: Duration,
    progress: Progress,
}

impl<'a> Follow<'a> {
    fn new(cluster: &'a Cluster, volume: &'a Volume, goal: Goal, limit: Duration) -> Self {
        Follow {
            cluster,
            volume,
            goal,
            limit,
            progress: Progress::new(volume.metadata.name.as_deref().unwrap_or_default()),
        }
    }

    async fn run(mut self, grace: Option<tokio::time::Instant>) -> anyhow::Result<String> {
        let name = self.progress.name.clone();
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
                    let last = self.progress.end();
                    bail!(
                        "timed out after {}: volume {name} {last}; run `quarry explain volume/{name}` for every check, or wait longer with --timeout",
                        seconds(self.limit)
                    );
                }
                Ok(Ok(None)) => bail!(
                    "the API closed the watch of volume {name}; run `quarry explain volume/{name}` to see its state"
                ),
                Ok(Err(error)) => {
                    self.progress.show(&format!("cannot be watched, retrying: {error}"));
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
                    // A new volume of the same name is another one.
                    current =
                        Some(found).filter(|found| found.metadata.uid == self.volume.metadata.uid);
                }
            }
            if grace.is_some()
                && current.as_ref().is_some_and(|current| current.status == self.volume.status)
            {
                self.progress.show("waits for the operator");
                continue;
            }
            grace = None;
            match stage(current.as_ref(), self.goal) {
                Stage::Waiting(text) => self.progress.show(&text),
                Stage::Reached(text) => {
                    let took = self.progress.started.elapsed();
                    self.progress.end();
                    return Ok(format!("volume {name} {text} ({})", seconds(took)));
                }
                Stage::Failed(text) => {
                    self.progress.end();
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

/// What is printed meanwhile, on standard error.
struct Progress {
    name: String,
    started: Instant,
    last: String,
    spinner: Option<ProgressBar>,
}

impl Progress {
    fn new(name: &str) -> Self {
        let spinner = output::is_interactive().then(|| {
            let style = ProgressStyle::with_template("{spinner:.cyan} {wide_msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            let bar = ProgressBar::new_spinner().with_style(style);
            bar.enable_steady_tick(Duration::from_millis(80));
            bar
        });
        Progress {
            name: name.to_owned(),
            started: Instant::now(),
            last: "was not read yet".into(),
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

    /// Removes the spinner; what was printed last.
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
    fn waiting_prints_the_message_of_the_volume() {
        assert_eq!(
            stage(Some(&volume(json!({}))), Goal::Available),
            Stage::Waiting("waits for the operator".into())
        );
        assert_eq!(
            stage(Some(&ready("Pending", Some("being prepared"))), Goal::Available),
            Stage::Waiting("is Pending: being prepared".into())
        );
        assert_eq!(
            stage(Some(&ready("Available", None)), Goal::Available),
            Stage::Reached("is Available on /dev/loop3".into())
        );
        assert_eq!(
            stage(Some(&ready("Failed", Some("no space"))), Goal::Available),
            Stage::Failed("is Failed: no space".into())
        );
        assert_eq!(stage(None, Goal::Available), Stage::Failed("was deleted meanwhile".into()));
    }

    #[test]
    fn a_deletion_ends_when_the_object_is_deleted() {
        for phase in ["Available", "Failed", "Pending", "Terminating"] {
            assert!(
                matches!(stage(Some(&ready(phase, None)), Goal::Deleted), Stage::Waiting(_)),
                "{phase}"
            );
        }
        assert!(matches!(stage(None, Goal::Deleted), Stage::Reached(_)));
    }

    #[test]
    fn times_have_a_fitting_unit() {
        assert_eq!(
            [312, 1_250, 65_000].map(|ms| seconds(Duration::from_millis(ms))),
            ["312 ms", "1.2 s", "65 s"]
        );
    }
}
