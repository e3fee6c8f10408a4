//! When a finished NodeJob may be deleted: by age, never while an object names it.

mod check;
mod plan;

pub use check::{Violation, check};
pub use plan::plan;

use jiff::SignedDuration;
use quarry_api::{NodeInventory, NodeJob, Volume};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Observed {
    pub job: Arc<NodeJob>,
    /// Whether Volumes are watched: the Volume controller is on.
    pub volumes_watched: bool,
    /// The Volume of the owner's name.
    pub volume: Option<Arc<Volume>>,
    /// That of the job's node.
    pub inventory: Option<Arc<NodeInventory>>,
    /// How long a finished job is kept.
    pub retention: SignedDuration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Until something changes.
    Keep,
    KeepFor(SignedDuration),
    Delete {
        uid: String,
        resource_version: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use serde_json::{Value, json};

    fn seen(phase: Option<&str>, named: bool) -> Observed {
        let volume = named.then(|| volume("PrepareVolume/j"));
        seen_of("Volume", phase, volume, None)
    }

    fn volume(job: &str) -> Value {
        json!({"metadata": {"name": "v"}, "status": {"job": job}})
    }

    fn inventory(job: &str) -> Value {
        json!({"metadata": {"name": "n"}, "spec": {"deviceClaims": [{
            "identity": "wwn:1", "job": {"name": job, "attempt": 1},
            "owner": {"kind": "LocalVolumeSet", "namespace": "s", "name": "fast", "uid": "x"},
        }]}})
    }

    fn seen_of(
        owner: &str,
        phase: Option<&str>,
        volume: Option<Value>,
        inventory: Option<Value>,
    ) -> Observed {
        let job = serde_json::from_value(json!({
            "apiVersion": "quarry.dev/v1alpha1", "kind": "NodeJob",
            "metadata": {"name": "j", "uid": "u", "resourceVersion": "7"},
            "spec": {
                "action": "Prepare", "nodeName": "n", "device": {}, "attempt": 1,
                "owner": {"kind": owner, "name": "v", "uid": "u"},
                "precondition": {"nodeUID": "x", "specHash": "h"},
            },
            "status": {"phase": phase, "completionTime": "2026-01-01T00:00:00Z"},
        }));
        let volume = volume.map(|mut object| {
            object["spec"] =
                json!({"nodeName": "n", "storageClassName": "c", "mode": "Filesystem"});
            (object["apiVersion"], object["kind"]) =
                (json!("storage.metalk8s.scality.com/v1alpha1"), json!("Volume"));
            Arc::new(serde_json::from_value(object).unwrap())
        });
        let inventory = inventory.map(|mut object| {
            (object["apiVersion"], object["kind"]) =
                (json!("quarry.dev/v1alpha1"), json!("NodeInventory"));
            Arc::new(serde_json::from_value(object).unwrap())
        });
        let retention = SignedDuration::from_hours(1);
        let job = Arc::new(job.unwrap());
        Observed { job, volumes_watched: true, volume, inventory, retention }
    }

    #[test]
    fn a_job_is_kept_while_an_object_names_it() {
        let late: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let kept = |seen: Observed| {
            let delete = Plan::Delete { uid: "u".into(), resource_version: "7".into() };
            let refused = check(&seen, &delete) == [Violation::Named("j".into())];
            let kept = plan(&seen, late) == Plan::Keep;
            assert_eq!(kept, refused, "plan and check agree");
            kept
        };
        let of = |owner: &str, volume: Option<&str>, claim: Option<&str>| {
            seen_of(owner, Some("Failed"), volume.map(super::tests::volume), claim.map(inventory))
        };
        assert!(kept(of("Volume", Some("PrepareVolume/j"), None)));
        assert!(!kept(of("Volume", Some("PrepareVolume/other"), None)));
        assert!(!kept(of("Volume", None, None)));
        assert!(kept(Observed { volumes_watched: false, ..of("Volume", None, None) }), "unseen");
        for owner in ["LocalVolumeSet", "LocalVolume"] {
            assert!(kept(of(owner, None, Some("j"))));
            assert!(!kept(of(owner, None, Some("other"))));
            assert!(!kept(Observed { volumes_watched: false, ..of(owner, None, None) }));
        }
    }

    #[test]
    fn a_finished_job_is_deleted_by_age_unless_named() {
        let end: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let late = end + SignedDuration::from_hours(2);
        let delete = Plan::Delete { uid: "u".into(), resource_version: "7".into() };
        for phase in [Some("Succeeded"), Some("Failed")] {
            assert_eq!(plan(&seen(phase, true), late), Plan::Keep);
            let hour = SignedDuration::from_hours(1);
            assert_eq!(plan(&seen(phase, false), end), Plan::KeepFor(hour));
            assert_eq!(plan(&seen(phase, false), late), delete);
            assert_eq!(check(&seen(phase, false), &delete), []);
        }
        for phase in [None, Some("Running")] {
            assert_eq!(plan(&seen(phase, false), late), Plan::Keep);
        }
    }

    #[test]
    fn check_reports_every_wrong_deletion() {
        let blind = Plan::Delete { uid: String::new(), resource_version: "7".into() };
        let found = check(&seen(Some("Running"), true), &blind);
        let name = || "j".to_owned();
        let all = [
            Violation::Named(name()),
            Violation::Unfinished(name()),
            Violation::Unconditional(name()),
        ];
        assert_eq!(found, all);
        assert_eq!(check(&seen(Some("Running"), true), &Plan::Keep), []);
    }
}
