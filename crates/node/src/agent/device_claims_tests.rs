//! What is asked of the node and what is reported, over operations that only remember.

use super::*;
use crate::{
    agent::{AgentOptions, Workers},
    device_claim::{Confirmation, HeldDevice, HoldRequest},
    node_ops::ScanRequest,
};
use kube::Client;
use quarry_api::{
    NodeInventorySpec, NodeInventoryStatus,
    node_inventory::{ClaimContent, ClaimJob, ClaimOwner, Evidence, RetainedData},
    volume::VolumeMode,
};
use quarry_core::{
    device::{Content, ExclusiveOpen, Facts},
    job::{Intent, Outcome},
};
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Default)]
struct World {
    devices: Vec<Facts>,
    /// What is asked, in order.
    diary: Vec<String>,
    refuse: Option<String>,
    /// No link can be made or removed.
    broken_link: bool,
    outdated: Option<String>,
}

#[derive(Default)]
struct Fake(Mutex<World>);

impl Fake {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }
}

impl DeviceOps for Fake {
    fn scan_node(&self, _: &ScanRequest) -> Result<NodeScan, NodeError> {
        Ok(NodeScan {
            devices: self.world().devices.clone(),
            machine_id: Some("m".into()),
            ..NodeScan::default()
        })
    }
    fn confirm(&self, request: &ConfirmRequest) -> Result<Confirmation, NodeError> {
        let mut world = self.world();
        let names: Vec<&str> = request.claims.iter().map(|claim| claim.identity.as_str()).collect();
        world.diary.push(format!("confirm {}", names.join(" ")));
        let answer = || world.refuse.clone().map_or(Ok(()), Err);
        Ok(Confirmation {
            results: request.claims.iter().map(|_| answer()).collect(),
            scan: request.scan.clone(),
        })
    }
    fn follow_links(&self, tasks: &[LinkTask]) -> Result<Vec<LinkState>, NodeError> {
        let mut world = self.world();
        let mut states = Vec::new();
        for task in tasks {
            let (said, linked) = match &task.goal {
                LinkGoal::Lead(device) => (format!("lead to {}", device.name), true),
                LinkGoal::Observe(device) => {
                    (format!("check {:?}", device.as_ref().map(|device| &device.name)), false)
                }
                LinkGoal::Await => ("await".to_owned(), false),
                LinkGoal::Remove => ("remove".to_owned(), false),
            };
            world.diary.push(said);
            let problem = world.broken_link.then(|| "broken".to_owned());
            states.push(LinkState { linked: linked && problem.is_none(), problem, repaired: None });
        }
        Ok(states)
    }
    fn resolve(&self, paths: &[String]) -> Result<Vec<PathReport>, NodeError> {
        Ok(paths
            .iter()
            .map(|path| PathReport { path: path.clone(), ..PathReport::default() })
            .collect())
    }
    fn hold(&self, _: &HoldRequest) -> Result<Box<dyn HeldDevice>, NodeError> {
        panic!("a scan erases nothing")
    }
}

impl LedgerOps for Fake {
    fn record_intent(&self, _: &Intent) -> Result<(), NodeError> {
        panic!("nothing is recorded for a claim")
    }
    fn record_outcome(&self, _: &Outcome) -> Result<(), NodeError> {
        panic!("nothing is recorded for a claim")
    }
    fn record_retained(&self, retained: &[RetainedData]) -> Result<(), NodeError> {
        self.world().diary.extend(retained.iter().map(|data| format!("retain {}", data.pv_uid)));
        Ok(())
    }
    fn record_released(&self, claims: &[DeviceClaim]) -> Result<(), NodeError> {
        self.world()
            .diary
            .extend(claims.iter().map(|claim| format!("released {}", claim.identity)));
        Ok(())
    }
    fn outdated(&self, claims: &[DeviceClaim]) -> Result<Vec<Option<String>>, NodeError> {
        Ok(claims.iter().map(|_| self.world().outdated.clone()).collect())
    }
    fn ledger_id(&self) -> Result<String, NodeError> {
        Ok("l".into())
    }
}

fn disk(name: &str, wwn: u64) -> Facts {
    let evidence =
        vec![Evidence { source: "sysfs:wwid".into(), value: format!("naa.5000c5000000000{wwn}") }];
    Facts {
        name: name.into(),
        kind: "disk".into(),
        size: 1 << 30,
        number: format!("8:{wwn}"),
        evidence,
        exclusive_open: ExclusiveOpen::Free,
        content: Content::Blank,
        ..Facts::default()
    }
}

fn claim(wwn: u64) -> DeviceClaim {
    DeviceClaim {
        identity: format!("wwn:5000c5000000000{wwn}"),
        owner: ClaimOwner {
            kind: "LocalVolumeSet".into(),
            namespace: Some("q".into()),
            name: "fast".into(),
            uid: "u".into(),
        },
        size: 1 << 30,
        link: format!("/mnt/local-storage/fast/{wwn}"),
        round: 1,
        ..DeviceClaim::default()
    }
}

fn inventory(claims: Vec<DeviceClaim>) -> NodeInventory {
    let spec = NodeInventorySpec {
        device_claims: claims,
        machine_id: Some("m".into()),
        ..NodeInventorySpec::default()
    };
    let mut inventory = NodeInventory::new("n", spec);
    inventory.status = Some(NodeInventoryStatus::default());
    inventory
}

fn confirmed(claim: &DeviceClaim) -> ClaimReport {
    report_base(claim, ClaimState::Confirmed)
}

/// One scan; the reports, and what was asked of the node.
fn attend(
    devices: &[Facts],
    inventory: &NodeInventory,
    prepare: impl FnOnce(&mut World),
) -> (ClaimReports, Vec<String>) {
    let ops = Arc::new(Fake::default());
    ops.world().devices = devices.to_vec();
    prepare(&mut ops.world());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client =
            Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let agent = Agent::new(client, ops.clone(), Workers::Inline, AgentOptions::new("n"));
        let mut scan = ops.scan_node(&ScanRequest::default()).unwrap();
        let attended =
            agent.attend(&mut scan, inventory, &mut UnreportedClaims::default()).await.unwrap();
        let diary = ops.world().diary.clone();
        (attended, diary)
    })
}

fn said(report: &ClaimReport) -> (ClaimState, Option<&str>, bool, Option<&str>) {
    (report.state, report.device.as_deref(), report.linked, report.message.as_deref())
}

// invariant: 1
#[test]
fn new_claims_are_confirmed_together_and_only_once() {
    let mut inventory = inventory(vec![claim(1), claim(2), claim(3)]);
    let status = inventory.status.as_mut().unwrap();
    status.device_claims =
        vec![confirmed(&claim(2)), ClaimReport { round: 0, ..confirmed(&claim(1)) }];
    let devices = [disk("sda", 1), disk("sdb", 2), disk("sdc", 3)];
    let (attended, diary) = attend(&devices, &inventory, |_| {});
    assert_eq!(
        diary,
        [
            "confirm wwn:5000c50000000001 wwn:5000c50000000003",
            "lead to sda",
            "lead to sdb",
            "lead to sdc"
        ]
    );
    let names: Vec<_> = attended
        .claims
        .iter()
        .map(|report| (report.state, report.device.clone().unwrap(), report.linked, report.round))
        .collect();
    assert_eq!(
        names,
        ["sda", "sdb", "sdc"].map(|name| (ClaimState::Confirmed, name.to_owned(), true, 1))
    );
    assert_eq!(attended.again_in, None);
    // On its own result: only the links are checked, and the reports are the same.
    inventory.status.as_mut().unwrap().device_claims.clone_from(&attended.claims);
    let (again, diary) = attend(&devices, &inventory, |_| {});
    assert_eq!((again, diary.len()), (attended, 3));
}

#[test]
fn a_confirmation_before_a_conflict_is_checked_again() {
    let claimed = claim(1);
    let scan = NodeScan {
        devices: vec![disk("sda", 1)],
        machine_id: Some("m".into()),
        ..NodeScan::default()
    };
    let fresh = UnreportedClaims(vec![claimed.clone()]);
    let mut inventory = inventory(vec![claimed.clone()]);
    let action_of = |inventory: &NodeInventory, claim: &DeviceClaim| {
        let known = NodeView::of(inventory).known(&scan);
        case(claim, inventory, &scan, &known, &fresh, None).action
    };
    assert_eq!(action_of(&inventory, &claimed), ClaimAction::Keep, "not opened a second time");
    assert_eq!(
        action_of(&inventory, &DeviceClaim { round: 2, ..claimed.clone() }),
        ClaimAction::Confirm
    );
    let rival = DeviceClaim {
        owner: ClaimOwner { uid: "other".into(), ..claimed.owner.clone() },
        ..claimed.clone()
    };
    inventory.spec.device_claims.push(rival);
    assert_eq!(
        action_of(&inventory, &claimed),
        ClaimAction::Confirm,
        "another owner claims it, too"
    );
}

// invariant: 1
#[test]
fn a_device_that_the_last_scan_rules_out_is_not_opened() {
    type Spoil = fn(&mut Facts);
    let spoil: [(Spoil, &str); 5] = [
        (|facts| facts.content = Content::TimedOut, "does not answer"),
        (|facts| facts.observed_only = true, "sda"),
        (|facts| facts.mounts = vec!["/mnt".into()], "/mnt"),
        (|facts| facts.content = Content::UnknownData, "sda"),
        (|facts| facts.size = 1 << 29, "bytes"),
    ];
    for (spoil, word) in spoil {
        let mut device = disk("sda", 1);
        spoil(&mut device);
        let (attended, diary) = attend(&[device], &inventory(vec![claim(1)]), |_| {});
        let (state, name, linked, message) = said(&attended.claims[0]);
        assert_eq!((state, name, linked), (ClaimState::Refused, Some("sda"), false));
        assert!(message.unwrap().contains(word), "{message:?}");
        assert_eq!(diary, ["check Some(\"sda\")"]);
        assert_eq!(attended.again_in, Some(REFUSED_AGAIN));
    }
}

#[test]
fn a_confirmed_claim_stays_so_without_its_device() {
    let mut inventory = inventory(vec![claim(1)]);
    inventory.status.as_mut().unwrap().device_claims = vec![confirmed(&claim(1))];
    let (gone, diary) = attend(&[], &inventory, |_| {});
    assert_eq!(
        said(&gone.claims[0]),
        (ClaimState::Confirmed, None, false, Some("device wwn:5000c50000000001 is missing"))
    );
    assert_eq!(diary, ["await"]);
    // Two with that identity: it is not certain which one the link may lead to.
    let (twice, diary) = attend(&[disk("sda", 1), disk("sdb", 1)], &inventory, |_| {});
    assert_eq!(
        said(&twice.claims[0]),
        (
            ClaimState::Confirmed,
            None,
            false,
            Some("sda and sdb both have the identity wwn:5000c50000000001")
        )
    );
    assert_eq!(diary, ["await"]);
    let (broken, _) = attend(&[disk("sda", 1)], &inventory, |world| world.broken_link = true);
    assert_eq!(
        said(&broken.claims[0]),
        (ClaimState::Confirmed, Some("sda"), false, Some("broken"))
    );
}

/// A second device shows the identity, later in the same boot: the link keeps the one that was confirmed.
// invariant: 3
#[test]
fn the_link_stays_with_the_first_of_two_equal_devices() {
    let seq = |facts: Facts, seq: u64| Facts { diskseq: Some(seq), ..facts };
    let both = [seq(disk("sda", 1), 7), seq(disk("sdb", 1), 8)];
    let mut inventory = inventory(vec![claim(1)]);
    let mut before = |boot: Option<&str>, diskseq: i64| {
        let device = Some("sdb".to_owned());
        let row = quarry_api::node_inventory::Device {
            name: "sdb".into(),
            diskseq: Some(diskseq),
            ..Default::default()
        };
        inventory.status = Some(NodeInventoryStatus {
            boot_id: boot.map(str::to_owned),
            devices: vec![row],
            device_claims: vec![ClaimReport { device, ..confirmed(&claim(1)) }],
            ..NodeInventoryStatus::default()
        });
        attend(&both, &inventory, |_| {})
    };
    let (kept, diary) = before(None, 8);
    assert_eq!(diary, ["lead to sdb"]);
    assert_eq!(kept.claims[0].device.as_deref(), Some("sdb"), "remembered for the next scan");
    assert!(kept.claims[0].message.as_ref().unwrap().contains("both have the identity"));
    assert_eq!(before(None, 9).1, ["await"], "another disk has that name");
    assert_eq!(before(Some("earlier"), 8).1, ["await"], "another boot");
}

#[test]
fn a_terminating_claim_loses_its_link_and_nothing_more() {
    let ending = DeviceClaim { terminating: true, ..claim(1) };
    let mut inventory = inventory(vec![ending.clone()]);
    inventory.status.as_mut().unwrap().device_claims = vec![confirmed(&ending)];
    let mounted = Facts { mounts: vec!["/mnt".into()], ..disk("sda", 1) };
    let (attended, diary) = attend(std::slice::from_ref(&mounted), &inventory, |_| {});
    assert_eq!(
        (said(&attended.claims[0]), diary),
        (
            (ClaimState::Removed, None, false, None),
            vec!["remove".to_owned(), format!("released {}", ending.identity)]
        )
    );
    let (stuck, _) = attend(&[mounted], &inventory, |world| world.broken_link = true);
    assert_eq!(
        said(&stuck.claims[0]),
        (ClaimState::RemovalFailed, Some("sda"), false, Some("broken")),
        "what is left is not at its end"
    );
}

#[test]
fn a_claim_with_a_job_or_of_another_machine_is_left_alone() {
    let job = Some(ClaimJob { name: "wipe-1".into(), attempt: 1 });
    let (waits, diary) =
        attend(&[disk("sda", 1)], &inventory(vec![DeviceClaim { job, ..claim(1) }]), |_| {});
    assert_eq!(
        said(&waits.claims[0]),
        (ClaimState::Refused, Some("sda"), false, Some("a job is under way on the device"))
    );
    assert_eq!(diary, ["check Some(\"sda\")"]);
    for claim in [claim(1), DeviceClaim { terminating: true, ..claim(1) }] {
        let mut inventory = inventory(vec![claim.clone()]);
        inventory.spec.machine_id = Some("another".into());
        inventory.status.as_mut().unwrap().device_claims = vec![confirmed(&claim)];
        let (frozen, diary) = attend(&[disk("sda", 1)], &inventory, |_| {});
        assert_eq!(
            (frozen.claims[0].state, frozen.claims[0].linked),
            (ClaimState::Confirmed, false)
        );
        assert!(frozen.claims[0].message.as_ref().unwrap().contains("another machine"));
        assert_eq!(diary, ["check Some(\"sda\")"]);
    }
}

#[test]
fn a_refusal_is_reported_and_content_any_keeps_its_data() {
    let (refused, _) = attend(&[disk("sda", 1)], &inventory(vec![claim(1)]), |world| {
        world.refuse = Some("sda is busy".into())
    });
    assert_eq!(
        said(&refused.claims[0]),
        (ClaimState::Refused, Some("sda"), false, Some("sda is busy"))
    );
    let any = |mode: VolumeMode| DeviceClaim {
        content: ClaimContent::Any,
        volume_mode: mode,
        ..claim(1)
    };
    let data = Facts { content: Content::UnknownData, ..disk("sda", 1) };
    let (kept, diary) =
        attend(std::slice::from_ref(&data), &inventory(vec![any(VolumeMode::Block)]), |_| {});
    assert_eq!(
        (kept.claims[0].state, diary[0].as_str()),
        (ClaimState::Confirmed, "confirm wwn:5000c50000000001")
    );
    let (refused, diary) = attend(&[data], &inventory(vec![any(VolumeMode::Filesystem)]), |_| {});
    assert_eq!(
        (refused.claims[0].state, diary),
        (ClaimState::Refused, vec!["check Some(\"sda\")".to_owned()]),
        "kubelet would format it"
    );
}

#[test]
fn retained_data_is_recorded_on_the_node_first() {
    let mut inventory = inventory(vec![]);
    inventory.spec.retained_data = vec![RetainedData {
        identity: "wwn:9".into(),
        pv_name: "p".into(),
        pv_uid: "u".into(),
        ..RetainedData::default()
    }];
    let (_, diary) = attend(&[disk("sda", 1)], &inventory, |_| {});
    assert_eq!(diary, ["retain u"]);
}

/// The ledger knows more than the API, which was restored from a backup.
// invariant: 10
#[test]
fn an_outdated_claim_loses_its_link_and_is_reported() {
    let mut inventory = inventory(vec![claim(1)]);
    let confirmed = report_base(&claim(1), ClaimState::Confirmed);
    inventory.status = Some(quarry_api::NodeInventoryStatus {
        device_claims: vec![confirmed],
        ..Default::default()
    });
    let (attended, diary) = attend(&[disk("sda", 1)], &inventory, |world| {
        world.outdated = Some("the ledger of this node records a later round".into());
    });
    assert_eq!(diary, ["remove"]);
    let report = &attended.claims[0];
    assert_eq!((report.state, report.linked), (ClaimState::Outdated, false));
    assert!(report.message.as_ref().unwrap().contains("a later round"));
}
