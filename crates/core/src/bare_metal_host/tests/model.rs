//! A host, its objects and an Ironic that reacts to calls: what real ones do, without time and network.

use super::*;
use crate::bare_metal_host::check::check;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use quarry_ironic::{Call, Meaning, PatchOp, PowerState, PowerTarget, ProvisionTarget, Reach};

/// What goes wrong while it lasts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub ironic_down: bool,
    pub bmc_down: bool,
    pub silent: bool,
    pub secret_missing: bool,
    pub maintained: bool,
    pub locked: bool,
    pub refused: bool,
    /// The step that builds RAID fails.
    pub build_fails: bool,
    /// The step that erases RAID fails.
    pub erase_fails: bool,
    pub deploy_fails: bool,
    /// The BMC cannot list its drives.
    pub drives_not_listed: bool,
}

/// What is on the machine, whatever Ironic knows of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disks {
    pub hardware: Vec<String>,
    pub software: Vec<String>,
    pub image: Option<String>,
    /// How often RAID was erased and built.
    pub erased: usize,
    pub built: usize,
}

pub struct World {
    /// `None`: released, and gone.
    pub host: Option<BareMetalHost>,
    pub data: Option<HardwareData>,
    pub secret: Secret,
    pub node: Option<Node>,
    pub ports: Vec<Port>,
    pub inventory: Option<Inventory>,
    pub now: Timestamp,
    pub faults: Faults,
    /// Steps, calls and writes of the status are carried out up to this number; then the operator is killed.
    pub killed_after: Option<usize>,
    pub disks: Disks,
    /// Steps that Ironic carries out, and the state after them.
    cleaning: (Vec<String>, Option<ProvisionState>),
    /// Calls that Ironic accepted.
    pub calls: Vec<String>,
    /// Reasons of the Events that were published.
    pub events: Vec<String>,
    created: usize,
}

/// What one reconcile did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Round {
    pub steps: usize,
    pub call: Option<String>,
    pub wrote_status: bool,
    pub wait: Option<SignedDuration>,
}

impl World {
    pub fn new(host: BareMetalHost, node: Option<Node>) -> Self {
        let secret = secret(json!({}));
        let ports = node.iter().map(|_| port(MAC)).collect();
        World {
            host: Some(host),
            data: None,
            secret,
            node,
            ports,
            inventory: None,
            now: now(),
            faults: Faults::default(),
            killed_after: None,
            disks: Disks::default(),
            cleaning: (Vec::new(), None),
            calls: Vec::new(),
            events: Vec::new(),
            created: 0,
        }
    }

    pub fn observe(&self, host: &BareMetalHost) -> Observed {
        let ironic = match needs_ironic(host) {
            false => IronicView::NotAsked,
            true if self.faults.ironic_down => {
                IronicView::Failed(error(Meaning::Unreachable(Reach::ConnectionRefused)))
            }
            true => {
                let reads = reads(host, self.node.as_ref());
                IronicView::Seen(Box::new(IronicNode {
                    node: self.node.clone(),
                    ports: reads.ports.then(|| self.ports.clone()),
                    inventory: self.inventory.clone().filter(|_| reads.inventory),
                    ..IronicNode::default()
                }))
            }
        };
        Observed {
            host: host.clone(),
            hardware_data: self.data.clone(),
            secret: (!self.faults.secret_missing).then(|| self.secret.clone()),
            secret_is_shared: false,
            user_data: None,
            arrays: None,
            former_secrets: Vec::new(),
            ironic,
            settings: settings(),
        }
    }

    /// One reconcile, and what the world does meanwhile.
    pub fn round(&mut self) -> Round {
        let Some(host) = self.host.clone() else { return Round::default() };
        let seen = self.observe(&host);
        let plan = plan(&seen, self.now);
        assert_eq!(check(&seen, &plan), [], "{plan:#?}");
        self.events.extend(plan.events.iter().map(|event| event.reason.to_owned()));
        let mut left = self.killed_after.take().unwrap_or(usize::MAX);
        let round = self.apply(&seen, &plan, &mut left);
        self.react();
        self.now +=
            round.wait.unwrap_or(SignedDuration::from_secs(60)).max(SignedDuration::from_secs(1));
        round
    }

    fn apply(&mut self, seen: &Observed, plan: &Plan, left: &mut usize) -> Round {
        let mut alive = || {
            let alive = *left > 0;
            *left = left.saturating_sub(1);
            alive
        };
        let mut round = Round { wait: plan.requeue, ..Round::default() };
        for step in &plan.steps {
            if !alive() {
                return round;
            }
            self.step(step);
            round.steps += 1;
        }
        let mut report = report_success(seen, plan, None, self.now);
        if let Some(call) = &plan.call {
            if !alive() {
                return round;
            }
            round.call = Some(call.to_string());
            match self.perform(call) {
                Ok(created) => {
                    self.calls.push(call.to_string());
                    report = report_success(seen, plan, created.as_deref(), self.now);
                }
                Err(error) => {
                    report = report_failure(seen, None, &error, self.now);
                    round.wait = report.requeue;
                }
            }
        }
        if plan.call.is_none() || self.calls.last() == round.call.as_ref() {
            for step in &plan.after {
                if !alive() {
                    return round;
                }
                self.step(step);
                round.steps += 1;
            }
        }
        if let Some(status) = report.status
            && alive()
            && let Some(host) = &mut self.host
        {
            // As the API returns it.
            let text = serde_json::to_string(&status).unwrap();
            host.status = Some(serde_json::from_str(&text).unwrap());
            round.wrote_status = true;
        }
        round
    }

    fn step(&mut self, step: &Step) {
        let Some(host) = &mut self.host else { return };
        let finalizers = host.metadata.finalizers.get_or_insert_default();
        match step {
            Step::AddFinalizer => finalizers.push(names::HOST_FINALIZER.to_owned()),
            Step::RemoveFinalizer => self.host = None,
            Step::RemoveAnnotations(gone) => {
                let all = host.metadata.annotations.get_or_insert_default();
                gone.iter().for_each(|name| drop(all.remove(*name)));
            }
            Step::SetArchitecture(found) => host.spec.architecture = found.clone(),
            Step::RecordInspection(before) => {
                let all = host.metadata.annotations.get_or_insert_default();
                all.remove(names::INSPECT_ANNOTATION);
                all.insert(names::INSPECTION_ANNOTATION.to_owned(), before.clone());
            }
            Step::WriteStatus(status) => host.status = Some((**status).clone()),
            Step::RestoreStatus(status) => {
                host.status = Some(serde_json::from_value(status.clone()).unwrap());
            }
            Step::ClaimSecret => {
                let fresh = secret(json!({"metadata": {"resourceVersion": "8"}}));
                self.secret.metadata = fresh.metadata;
            }
            Step::ReleaseSecret => {
                self.secret.metadata.finalizers = None;
                self.secret.metadata.owner_references = None;
            }
            Step::ReleaseFormerSecret(name) => unreachable!("it uses one Secret, not {name}"),
            Step::CreateHardwareData(made) => {
                assert!(self.data.is_none(), "there is one already");
                self.data = Some((**made).clone());
            }
            Step::ReleaseHardwareData => {
                if let Some(data) = &mut self.data {
                    data.metadata.finalizers = None;
                }
                self.data.take_if(|data| data.metadata.deletion_timestamp.is_some());
            }
            Step::ClaimHardwareData => {
                if let (Some(data), Some(host)) = (&mut self.data, &self.host) {
                    data.metadata = data_of(host, 1).metadata;
                }
            }
            Step::DeleteHardwareData => self.delete_data(),
        }
    }

    /// As by an administrator, too.
    pub fn delete_data(&mut self) {
        if let Some(data) = &mut self.data {
            data.metadata.deletion_timestamp = Some(Time(self.now));
        }
        self.data.take_if(|data| data.metadata.finalizers.as_ref().is_none_or(Vec::is_empty));
    }

    fn perform(&mut self, call: &Call) -> Result<Option<String>, Error> {
        if self.faults.locked {
            return Err(error(Meaning::Locked));
        }
        if self.faults.refused {
            return Err(error(Meaning::Refused));
        }
        if let Call::CreateNode(new) = call {
            assert!(self.node.is_none(), "Ironic has a node of this name");
            self.created += 1;
            let mut made: Node = serde_json::from_value(serde_json::to_value(new).map(|mut made| {
                merge(&mut made, &json!({"uuid": format!("new-{}", self.created), "provision_state": "enroll"}));
                made
            }).unwrap()).unwrap();
            made.driver_info.0.insert("redfish_password".into(), "******".into());
            made.disable_power_off.get_or_insert(false);
            let id = made.uuid.clone();
            self.node = Some(made);
            self.ports.clear();
            self.inventory = None;
            return Ok(Some(id));
        }
        let Some(node) = &mut self.node else { return Err(error(Meaning::NotFound)) };
        let state = node.provision_state.clone();
        match call {
            Call::CreateNode(_) | Call::DeletePort { .. } => unreachable!("{call}"),
            Call::SetRaid { config, .. } => {
                let config = serde_json::to_value(config).unwrap();
                node.target_raid_config = config.as_object().unwrap().clone();
            }
            Call::CreatePort(new) => self.ports.push(port(&new.address)),
            Call::PatchNode { ops, .. } => patch(node, ops),
            Call::SetMaintenance { reason, .. } => {
                node.maintenance = true;
                node.maintenance_reason = Some(reason.clone());
            }
            Call::ClearMaintenance { .. } => {
                node.maintenance = false;
                (node.fault, node.maintenance_reason) = (None, None);
            }
            Call::DeleteNode { .. } => {
                let plain =
                    [ProvisionState::Enroll, ProvisionState::Manageable, ProvisionState::Available];
                if !node.maintenance && !plain.contains(&state) {
                    return Err(error(Meaning::WrongState));
                }
                (self.node, self.inventory) = (None, None);
                self.ports.clear();
            }
            Call::SetPower { target, .. } => {
                node.last_error = None;
                let on = matches!(
                    target,
                    PowerTarget::On | PowerTarget::Reboot | PowerTarget::SoftReboot { .. }
                );
                node.target_power_state = Some(if on { PowerState::On } else { PowerState::Off });
            }
            Call::SetProvisionState { .. } if node.maintenance => {
                return Err(error(Meaning::Maintenance));
            }
            Call::SetProvisionState { target, .. } => {
                node.provision_state = next_state(&state, target)?;
                node.provision_updated_at = Some(self.now);
                node.last_error = None;
                match target {
                    ProvisionTarget::Clean { steps } => {
                        let ends = self.host.as_ref().map(BareMetalHost::state)
                            == Some(ProvisioningState::Deprovisioning);
                        assert!(ends || self.disks.image.is_none(), "cleaned in use: {call}");
                        let steps = steps.iter().map(ToString::to_string).collect();
                        self.cleaning = (steps, Some(ProvisionState::Manageable));
                    }
                    ProvisionTarget::Provide | ProvisionTarget::Deleted => {
                        // Automated cleaning.
                        let erases = node.automated_clean != Some(false);
                        let step = erases.then(|| "deploy.erase_devices_metadata".to_owned());
                        self.cleaning =
                            (step.into_iter().collect(), Some(ProvisionState::Available));
                    }
                    _ => {}
                }
                if matches!(target, ProvisionTarget::Inspect) {
                    node.inspection_finished_at = None;
                }
                if matches!(target, ProvisionTarget::Abort) {
                    node.last_error = Some("aborted on request".to_owned());
                }
            }
        }
        Ok(None)
    }

    /// Ironic and the machine go on.
    fn react(&mut self) {
        let Faults { bmc_down, silent, maintained, .. } = self.faults;
        let Some(node) = &mut self.node else { return };
        if maintained && !node.maintenance {
            (node.maintenance, node.fault) = (true, None);
        }
        let text = |text: &str| Some(text.to_owned());
        if let Some(target) = node.target_power_state.take() {
            match bmc_down {
                true => node.last_error = text("Failed to change power state"),
                false => node.power_state = Some(target),
            }
        }
        let next = match (&node.provision_state, bmc_down, silent) {
            (ProvisionState::Verifying, true, _) => {
                node.last_error = text("Failed to get power state");
                ProvisionState::Enroll
            }
            (ProvisionState::Verifying, false, _) => {
                node.power_state.get_or_insert(PowerState::Off);
                ProvisionState::Manageable
            }
            (ProvisionState::Inspecting, false, _)
                if node.inspect_interface.as_deref() == Some("redfish")
                    && self.faults.drives_not_listed =>
            {
                node.last_error = text("The attribute Drives is missing");
                ProvisionState::InspectFailed
            }
            (ProvisionState::Inspecting, false, _)
                if node.inspect_interface.as_deref() == Some("redfish") =>
            {
                node.inspection_finished_at = Some(self.now);
                self.inventory = Some(listed_drives());
                ProvisionState::Manageable
            }
            (ProvisionState::Inspecting, false, _) => {
                node.power_state = Some(PowerState::On);
                ProvisionState::InspectWait
            }
            (ProvisionState::Inspecting, true, _) | (ProvisionState::InspectWait, _, true) => {
                node.last_error = text("timeout");
                ProvisionState::InspectFailed
            }
            (ProvisionState::InspectWait, _, false) => {
                node.inspection_finished_at = Some(self.now);
                self.inventory = Some(inventory(3));
                ProvisionState::Manageable
            }
            (ProvisionState::Adopting, _, _) => ProvisionState::Active,
            (ProvisionState::Deleting, _, _) => {
                self.disks.image = None;
                ProvisionState::Cleaning
            }
            (ProvisionState::Cleaning, false, _) => ProvisionState::CleanWait,
            (ProvisionState::Cleaning, true, _) | (ProvisionState::CleanWait, _, true) => {
                node.last_error = text("timeout");
                ProvisionState::CleanFailed
            }
            (ProvisionState::CleanWait, _, false) => match self.cleaning.0.is_empty() {
                true => self.cleaning.1.clone().unwrap_or(ProvisionState::Manageable),
                false => {
                    let step = self.cleaning.0.remove(0);
                    match clean(&mut self.disks, node, &step, &self.faults) {
                        Ok(()) => ProvisionState::CleanWait,
                        Err(error) => {
                            node.last_error = Some(error);
                            (node.maintenance, node.fault) = (true, text("clean failure"));
                            ProvisionState::CleanFailed
                        }
                    }
                }
            },
            (ProvisionState::Deploying, _, _) => ProvisionState::DeployWait,
            (ProvisionState::DeployWait, _, _) if self.faults.deploy_fails || silent => {
                node.last_error = text("no suitable device");
                ProvisionState::DeployFailed
            }
            (ProvisionState::DeployWait, _, _) => {
                let source = node.instance_info.get_str("image_source");
                self.disks.image = source.map(str::to_owned);
                ProvisionState::Active
            }
            (state, _, _) => state.clone(),
        };
        if node.provision_state != next {
            node.provision_updated_at = Some(self.now + SignedDuration::from_millis(500));
        }
        node.provision_state = next;
        // Reads the power state now and then.
        let reads =
            matches!(node.provision_state, ProvisionState::Manageable | ProvisionState::Active);
        if reads && bmc_down && !node.maintenance {
            (node.maintenance, node.fault) = (true, text("power failure"));
        } else if !bmc_down && node.fault.is_some() {
            (node.maintenance, node.fault) = (false, None);
        }
    }

    /// Nothing goes wrong any more.
    pub fn heal(&mut self) {
        if let Some(node) = self.node.as_mut().filter(|node| node.fault.is_none()) {
            node.maintenance = false;
        }
        self.faults = Faults::default();
        self.killed_after = None;
    }
}

/// Four drives of one controller, which the operating system does not see.
fn listed_drives() -> Inventory {
    let drive = |number: usize| json!({"id": format!("d{number}"), "size": 500_u64 << 30, "media_type": "SSD"});
    let drives: Vec<Value> = (1..5).map(drive).collect();
    serde_json::from_value(json!({"storage_controllers": [{"id": "c1", "drives": drives}]}))
        .unwrap()
}

/// One step on the machine. `Err`: it fails.
fn clean(disks: &mut Disks, node: &mut Node, step: &str, faults: &Faults) -> Result<(), String> {
    let agent = node.raid_interface.as_deref() == Some("agent");
    let kind = if agent { &mut disks.software } else { &mut disks.hardware };
    match step {
        "deploy.erase_devices_metadata" => disks.image = None,
        "raid.delete_configuration" if faults.erase_fails => return Err("cannot delete".into()),
        "raid.delete_configuration" => {
            disks.erased += 1;
            kind.clear();
            let left = if agent { json!({}) } else { json!({"logical_disks": []}) };
            node.raid_config = left.as_object().unwrap().clone();
        }
        "raid.create_configuration" => {
            assert!(kind.is_empty(), "built over {kind:?}");
            if faults.build_fails {
                return Err("'details': 'no space', 'step': 'create_configuration'".into());
            }
            disks.built += 1;
            let mut target = node.target_raid().unwrap();
            assert!(!target.logical_disks.is_empty(), "nothing to build");
            for disk in &mut target.logical_disks {
                kind.push(format!("RAID {} on {:?}", disk.raid_level, disk.physical_disks));
                if !agent && disk.size_gb == quarry_ironic::SizeGb::Max {
                    disk.size_gb = quarry_ironic::SizeGb::Gib(499);
                }
            }
            let found = serde_json::to_value(&target).unwrap();
            node.raid_config = found.as_object().unwrap().clone();
        }
        other => panic!("no such step: {other}"),
    }
    Ok(())
}

fn next_state(state: &ProvisionState, target: &ProvisionTarget) -> Result<ProvisionState, Error> {
    use ProvisionState as State;
    Ok(match (target, state) {
        (ProvisionTarget::Manage, State::Enroll) => State::Verifying,
        (
            ProvisionTarget::Manage,
            State::Available | State::InspectFailed | State::CleanFailed | State::AdoptFailed,
        ) => State::Manageable,
        (ProvisionTarget::Clean { .. } | ProvisionTarget::Provide, State::Manageable) => {
            State::Cleaning
        }
        (ProvisionTarget::Active { .. }, State::Available | State::DeployFailed) => {
            State::Deploying
        }
        (
            ProvisionTarget::Deleted,
            State::Active | State::DeployWait | State::DeployFailed | State::Error,
        ) => State::Deleting,
        (ProvisionTarget::Inspect, State::Manageable | State::InspectFailed) => State::Inspecting,
        (ProvisionTarget::Abort, State::InspectWait) => State::InspectFailed,
        (ProvisionTarget::Abort, State::CleanWait) => State::CleanFailed,
        (ProvisionTarget::Adopt, State::Manageable | State::AdoptFailed) => State::Adopting,
        _ => return Err(error(Meaning::WrongState)),
    })
}

pub fn patch(node: &mut Node, ops: &[PatchOp]) {
    let mut object = serde_json::to_value(&*node).unwrap();
    for op in ops {
        let (parent, key) = op.path().rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match op {
            PatchOp::Add { value, .. } | PatchOp::Replace { value, .. } => {
                let shown = if key.contains("password") { json!("******") } else { value.clone() };
                parent.insert(key.to_owned(), shown);
            }
            PatchOp::Remove { .. } => drop(parent.remove(key).expect("there is something")),
        }
    }
    *node = serde_json::from_value(object).unwrap();
}
