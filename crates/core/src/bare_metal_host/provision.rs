//! The state `provisioning`: an image is written to the host, or booted. And what a host that was provisioned needs.
//!
//! Image, hints and boot mode are recorded when the state is entered, and used from there. A deployment that fails is
//! repeated in place: nothing has to be erased for it.

use super::{
    IronicView,
    clean::{self, POLL},
    power,
    raid::{self, root},
    register::keep_waiting,
    state_machine,
    status::{CONDITION_ACCEPTED, Draft, Flow},
};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use quarry_api::{
    BareMetalHost,
    bare_metal_host::{
        BareMetalHostStatus, BootMode, ChecksumType, ErrorType, Image, ImageFormat,
        ProvisioningState as State,
    },
};
use quarry_ironic::{
    Call, Guarded, Node, PatchOp, ProvisionState, ProvisionTarget, call::ConfigDrive,
};
use serde_json::{Map, Value, json};

const KIND: ErrorType = ErrorType::Provisioning;
const AT_ONCE: SignedDuration = SignedDuration::ZERO;
const SECRET_AGAIN: SignedDuration = SignedDuration::from_secs(30);
/// An image that failed so often is not tried again until it changes; as upstream.
pub const TRIES: i64 = 5;

/// The image that the spec asks for.
pub(super) fn image(host: &BareMetalHost) -> Option<&Image> {
    host.spec.image.as_ref().filter(|image| !image.url.is_empty())
}

/// The Secret with user data is read only where it is used.
pub fn needs_user_data(host: &BareMetalHost) -> bool {
    host.state() == State::Provisioning && host.spec.user_data.is_some()
}

/// Whether an available host is provisioned now. `Stop`: it is, or cannot be.
pub(super) fn begin(draft: &mut Draft<'_>) -> Flow {
    let host = &draft.seen.host;
    let unsupported = [
        ("spec.customDeploy", host.spec.custom_deploy.is_some()),
        ("spec.networkData", host.spec.network_data.is_some()),
        ("spec.metaData", host.spec.meta_data.is_some()),
    ];
    let unsupported: Vec<&str> =
        unsupported.into_iter().filter_map(|(name, given)| given.then_some(name)).collect();
    let Some(image) = image(host) else {
        if host.spec.custom_deploy.is_some() {
            not_supported(draft, &["spec.customDeploy"]);
        }
        return Flow::Continue;
    };
    if !unsupported.is_empty() {
        not_supported(draft, &unsupported);
        return Flow::Continue;
    }
    if !host.spec.online || !raid::is_prepared(host, &draft.status) {
        return Flow::Continue;
    }
    if raid::is_different(&draft.status) {
        draft.condition(
            CONDITION_ACCEPTED,
            "RAIDDiffers",
            "the host is not provisioned: its RAID volumes are not those of status.provisioning.raid; the condition quarry.dev/RAIDVerified has the difference and the remedy",
        );
        return Flow::Continue;
    }
    let (image, hints) = (image.clone(), root::spec_hints(host));
    if draft.status.last_attempted_image.as_ref() != Some(&image) {
        draft.status.provisioning_fail_count = 0;
    }
    draft.enter(State::Provisioning);
    draft.event("ProvisioningStarted", format!("Image provisioning started for {}", image.url));
    draft.status.last_attempted_image = Some(image.clone());
    draft.status.provisioning.image = image;
    draft.status.provisioning.root_device_hints = hints;
    // Recorded first: what is deployed is what the status says.
    draft.again_in(AT_ONCE)
}

fn not_supported(draft: &mut Draft<'_>, fields: &[&str]) {
    let message = format!(
        "this version does not use {}: the host is not provisioned; remove {} to provision it",
        fields.join(", "),
        if fields.len() == 1 { "the field" } else { "the fields" }
    );
    draft.condition(CONDITION_ACCEPTED, "NotSupported", &message);
}

/// The spec no longer asks for what is on the host, or is being put there.
pub(super) fn is_unwanted(host: &BareMetalHost, status: &BareMetalHostStatus) -> bool {
    let deployed = &status.provisioning;
    if !deployed.image.url.is_empty() {
        return image(host).is_none_or(|image| image.url != deployed.image.url);
    }
    match (&deployed.custom_deploy, &host.spec.custom_deploy) {
        (Some(deployed), wanted) => wanted.as_ref() != Some(deployed),
        // A status that does not say what is deployed is no reason to erase it.
        (None, _) => false,
    }
}

/// `Continue` when it has ended.
pub(super) fn provision(draft: &mut Draft<'_>) -> Flow {
    let host = &draft.seen.host;
    let Some(node) = draft.node() else { return Flow::Stop };
    if is_unwanted(host, &draft.status) && node.provision_state != ProvisionState::Deploying {
        draft.event("ProvisioningCanceled", "Image provisioning was canceled");
        draft.enter(State::Deprovisioning);
        return draft.again_in(AT_ONCE);
    }
    if draft.status.provisioning.image.url.is_empty() {
        // Another operator records it at the end.
        let Some(image) = image(host).cloned() else {
            draft.enter(State::Deprovisioning);
            return draft.again_in(AT_ONCE);
        };
        draft.status.provisioning.image = image;
        return draft.again_in(AT_ONCE);
    }
    if corrects(draft, node) {
        return draft.again_in(AT_ONCE);
    }
    let id = node.uuid.clone();
    match node.provision_state {
        ProvisionState::Manageable => {
            if let Some(flow) = clean::maintenance(draft, &KIND, node) {
                return flow;
            }
            if !draft.may_retry(&KIND) {
                return keep_waiting(draft, KIND);
            }
            if !clean::has_room(draft) {
                return Flow::Stop;
            }
            if draft.has_error(&KIND) {
                draft.clear_error();
            }
            let target = ProvisionTarget::Provide;
            draft.call(Call::SetProvisionState { id, target }, POLL)
        }
        ProvisionState::CleanFailed | ProvisionState::InspectFailed => failed_before(draft, node),
        ProvisionState::Available => deploy(draft, node),
        ProvisionState::DeployFailed => failed(draft, node),
        ProvisionState::Cleaning
        | ProvisionState::CleanWait
        | ProvisionState::Deploying
        | ProvisionState::DeployWait => {
            draft.clear_error();
            draft.again_in(POLL)
        }
        ProvisionState::Active => {
            draft.event(
                "ProvisioningComplete",
                format!("Image provisioning completed for {}", draft.status.provisioning.image.url),
            );
            draft.status.provisioning_fail_count = 0;
            draft.enter(State::Provisioned);
            Flow::Continue
        }
        _ => state_machine::unexpected(draft, node, power::AT_REST),
    }
}

/// What the spec says now of the same image, while nothing is deployed: recorded instead, and tried at once.
fn corrects(draft: &mut Draft<'_>, node: &Node) -> bool {
    let host = &draft.seen.host;
    let idle = matches!(
        node.provision_state,
        ProvisionState::Manageable
            | ProvisionState::Available
            | ProvisionState::DeployFailed
            | ProvisionState::CleanFailed
    );
    let Some(image) = image(host).filter(|_| idle).cloned() else { return false };
    let hints = root::spec_hints(host);
    let known = &mut draft.status.provisioning;
    if known.image == image && known.root_device_hints == hints {
        return false;
    }
    (known.image, known.root_device_hints) = (image.clone(), hints);
    draft.status.last_attempted_image = Some(image);
    draft.status.provisioning_fail_count = 0;
    draft.carry_on(&KIND);
    true
}

/// Ironic failed to clean the disks before the deployment.
fn failed_before(draft: &mut Draft<'_>, node: &Node) -> Flow {
    if !draft.has_error(&KIND) {
        let Some(error) = state_machine::error_of(draft, node) else { return draft.again_in(POLL) };
        return draft.fail(KIND, error);
    }
    if !draft.may_retry(&KIND) {
        return keep_waiting(draft, KIND);
    }
    draft.carry_on(&KIND);
    state_machine::recover(draft, node)
}

fn failed(draft: &mut Draft<'_>, node: &Node) -> Flow {
    if !draft.has_error(&KIND) {
        let Some(error) = state_machine::error_of(draft, node) else { return draft.again_in(POLL) };
        draft.status.provisioning_fail_count += 1;
        let tried = draft.status.provisioning_fail_count;
        let next =
            if tried < TRIES { "it is tried again" } else { "it is not tried again until then" };
        return draft.fail(
            KIND,
            format!("{error} (attempt {tried} of {TRIES}); correct spec.image, spec.rootDeviceHints or the host: {next}"),
        );
    }
    if draft.status.provisioning_fail_count >= TRIES {
        let message = draft.status.error_message.clone();
        return draft.refuse(KIND, message);
    }
    if !draft.may_retry(&KIND) {
        return keep_waiting(draft, KIND);
    }
    draft.carry_on(&KIND);
    if node.maintenance {
        return draft.call(Call::ClearMaintenance { id: node.uuid.clone() }, AT_ONCE);
    }
    deploy(draft, node)
}

/// What is deployed is set on the node first, then requested.
fn deploy(draft: &mut Draft<'_>, node: &Node) -> Flow {
    if !draft.may_retry(&KIND) {
        return keep_waiting(draft, KIND);
    }
    let configdrive = match config_drive(draft) {
        Ok(configdrive) => configdrive,
        Err(problem) => {
            draft.fail(KIND, problem);
            return draft.again_in(SECRET_AGAIN);
        }
    };
    if !clean::has_room(draft) {
        return Flow::Stop;
    }
    // A live image is written to no disk.
    let is_live = draft.status.provisioning.image.format == Some(ImageFormat::LiveIso);
    if let Some(problem) = root_device(draft, node).err().filter(|_| !is_live) {
        return draft.refuse(KIND, problem);
    }
    if let Some(flow) = clean::maintenance(draft, &KIND, node) {
        return flow;
    }
    let id = node.uuid.clone();
    let ops = instance_changes(draft, node);
    if !ops.is_empty() {
        draft.carry_on(&KIND);
        return draft.call(Call::PatchNode { id, ops }, AT_ONCE);
    }
    if draft.has_error(&KIND) {
        draft.clear_error();
    }
    let target = ProvisionTarget::Active { configdrive: Some(configdrive) };
    draft.call(Call::SetProvisionState { id, target }, POLL)
}

/// What the node must know of the image. Also needed to adopt it in another Ironic.
pub(super) fn instance_changes(draft: &Draft<'_>, node: &Node) -> Vec<PatchOp> {
    let status = &draft.status.provisioning;
    let mut ops = Vec::new();
    let live = status.image.format == Some(ImageFormat::LiveIso);
    let interface = if live { "ramdisk" } else { "direct" };
    if node.deploy_interface.as_deref() != Some(interface) {
        ops.push(PatchOp::add("/deploy_interface", interface));
    }
    let uid = draft.seen.host.uid();
    if node.instance_uuid != uid {
        ops.extend(uid.map(|uid| PatchOp::add("/instance_uuid", uid)));
    }
    let wanted = instance_info(draft, node);
    let same = wanted.iter().all(|(key, value)| node.instance_info.get(key) == Some(value));
    let others =
        ["boot_iso", "image_source", "image_checksum", "image_os_hash_value", "root_device"];
    let stale = others
        .iter()
        .any(|key| node.instance_info.get(key).is_some() && !wanted.contains_key(*key));
    if !same || stale {
        ops.push(PatchOp::add("/instance_info", wanted));
    }
    ops
}

fn instance_info(draft: &Draft<'_>, node: &Node) -> Map<String, Value> {
    let status = &draft.status.provisioning;
    let image = &status.image;
    let mut info = Map::new();
    let mut capabilities = Map::new();
    let mode = match &status.boot_mode {
        Some(BootMode::Legacy) => "bios",
        Some(BootMode::Uefi | BootMode::UefiSecureBoot | BootMode::Other(_)) | None => "uefi",
    };
    capabilities.insert("boot_mode".into(), mode.into());
    if status.boot_mode == Some(BootMode::UefiSecureBoot) {
        capabilities.insert("secure_boot".into(), "true".into());
    }
    info.insert("capabilities".into(), capabilities.into());
    if image.format == Some(ImageFormat::LiveIso) {
        info.insert("boot_iso".into(), image.url.clone().into());
        return info;
    }
    info.insert("image_source".into(), image.url.clone().into());
    if let Some(format) = &image.format {
        info.insert("image_disk_format".into(), format.as_str().into());
    }
    if !image.checksum.is_empty() {
        let is_url = image.checksum.contains("://");
        match &image.checksum_type {
            // Ironic finds the algorithm from the length of the checksum, also of one that it must fetch.
            Some(ChecksumType::Auto) => {
                info.insert("image_checksum".into(), image.checksum.clone().into());
            }
            _ if is_url => {
                info.insert("image_checksum".into(), image.checksum.clone().into());
            }
            known => {
                let algorithm = known.as_ref().map_or("md5", ChecksumType::as_str);
                info.insert("image_os_hash_algo".into(), algorithm.into());
                info.insert("image_os_hash_value".into(), image.checksum.clone().into());
            }
        }
    }
    // Refused before the deployment; an adoption does without.
    let root = root_device(draft, node).unwrap_or_default();
    if !root.is_empty() {
        info.insert("root_device".into(), root.into());
    }
    info
}

/// `Err`: the root disk cannot be selected, and why.
fn root_device(draft: &Draft<'_>, node: &Node) -> Result<Map<String, Value>, String> {
    let status = &draft.status;
    let reported = node.raid().map(|raid| raid.logical_disks).unwrap_or_default();
    let data = draft.seen.hardware_data.as_ref().and_then(|data| data.spec.hardware.as_ref());
    let disks = data.or(status.hardware.as_ref()).map(|hardware| hardware.storage.as_slice());
    let hints = status.provisioning.root_device_hints.as_ref();
    root::root_device(hints, raid::built(status), &reported, disks.unwrap_or_default())
}

/// What the instance reads at its first boot; names as upstream.
fn config_drive(draft: &Draft<'_>) -> Result<ConfigDrive, String> {
    let host = &draft.seen.host;
    let name = host.name_any();
    let mut parts = Guarded::default();
    parts.insert(
        "meta_data",
        json!({
            "uuid": host.uid(), "name": name, "local-hostname": name, "local_hostname": name,
            "metal3-name": name, "metal3-namespace": host.namespace(),
        }),
    );
    if let Some(reference) = &host.spec.user_data {
        let namespace = host.namespace().unwrap_or_default();
        if reference
            .namespace
            .as_ref()
            .is_some_and(|other| !other.is_empty() && *other != namespace)
        {
            return Err(format!(
                "spec.userData.namespace is another namespace than that of the host; move the Secret to {namespace}, and remove spec.userData.namespace"
            ));
        }
        let shown = format!("{namespace}/{}", reference.name.clone().unwrap_or_default());
        let Some(secret) = &draft.seen.user_data else {
            return Err(format!(
                "Secret {shown}, which spec.userData names, does not exist; create it with the key userData"
            ));
        };
        parts.insert("user_data", user_data(secret, &shown)?);
    }
    Ok(ConfigDrive::Parts(parts))
}

fn user_data(secret: &Secret, shown: &str) -> Result<String, String> {
    let data = secret.data.as_ref();
    let found = ["userData", "value"].iter().find_map(|key| data.and_then(|data| data.get(*key)));
    let found = found.ok_or_else(|| {
        format!("Secret {shown}, which spec.userData names, has no key userData; add it")
    })?;
    String::from_utf8(found.0.clone())
        .map_err(|_| format!("key userData of Secret {shown} is not text; replace it"))
}

/// Ironic lost the node, or another one adopts it.
pub(super) fn adoption_changes(draft: &Draft<'_>, node: &Node) -> Vec<PatchOp> {
    let deployed = !draft.status.provisioning.image.url.is_empty();
    let asked = matches!(draft.seen.ironic, IronicView::Seen(_));
    if deployed && asked { instance_changes(draft, node) } else { Vec::new() }
}
