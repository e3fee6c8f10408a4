//! The address of a BMC, as Ironic's driver and its settings.
//!
//! The scheme selects the driver, as upstream. What the planner does not use (BIOS, vendor, firmware interfaces) is left
//! to Ironic: naming an interface that an installation has not enabled would fail the whole registration.

use super::HostSettings;
use quarry_api::bare_metal_host::{BmcDetails, BootMode};
use quarry_ironic::{Guarded, PatchOp, secret::is_secret_key};
use serde_json::{Map, Value, json};

/// How the ramdisk reaches the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Boot {
    Network,
    VirtualMedia,
    UefiHttp,
}

/// The RAID controllers that a driver reaches through the BMC.
#[derive(Debug, PartialEq, Eq)]
pub struct HardwareRaid {
    /// Ironic's `raid_interface`.
    pub interface: &'static str,
    /// The `inspect_interface` that lists the drives behind the controllers.
    pub inspect: &'static str,
    pub levels: &'static [&'static str],
}

const LEVELS: &[&str] = &["0", "1", "5", "6", "1+0", "5+0", "6+0"];
static REDFISH: HardwareRaid =
    HardwareRaid { interface: "redfish", inspect: "redfish", levels: LEVELS };
static IDRAC: HardwareRaid =
    HardwareRaid { interface: "idrac-redfish", inspect: "idrac-redfish", levels: LEVELS };

/// One scheme of `spec.bmc.address`.
struct Scheme {
    name: &'static str,
    driver: &'static str,
    boot_interface: Option<&'static str>,
    boot: Boot,
    redfish: bool,
}

const fn redfish(
    name: &'static str,
    driver: &'static str,
    boot_interface: Option<&'static str>,
    boot: Boot,
) -> Scheme {
    Scheme { name, driver, boot_interface, boot, redfish: true }
}

const fn ipmi(name: &'static str) -> Scheme {
    Scheme {
        name,
        driver: "ipmi",
        boot_interface: Some("ipxe"),
        boot: Boot::Network,
        redfish: false,
    }
}

const MEDIA: Option<&str> = Some("redfish-virtual-media");
const IDRAC_MEDIA: Option<&str> = Some("idrac-redfish-virtual-media");

const SCHEMES: [Scheme; 9] = [
    ipmi("ipmi"),
    ipmi("libvirt"),
    redfish("redfish", "redfish", Some("ipxe"), Boot::Network),
    redfish("ilo5-redfish", "redfish", Some("ipxe"), Boot::Network),
    redfish("idrac-redfish", "idrac", Some("ipxe"), Boot::Network),
    redfish("redfish-virtualmedia", "redfish", MEDIA, Boot::VirtualMedia),
    redfish("ilo5-virtualmedia", "redfish", MEDIA, Boot::VirtualMedia),
    redfish("idrac-virtualmedia", "idrac", IDRAC_MEDIA, Boot::VirtualMedia),
    redfish("redfish-uefihttp", "redfish", Some("redfish-https"), Boot::UefiHttp),
];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error(
        "spec.bmc.address {0:?} has the unknown scheme {1:?}; use one of {2}, each also with +http or +https"
    )]
    Scheme(String, String, String),
    #[error("spec.bmc.address {0:?} has no host; use SCHEME://HOST[:PORT][/PATH]")]
    Host(String),
    #[error(
        "spec.bmc.address {0:?} has no path to the system; add it, such as /redfish/v1/Systems/1"
    )]
    Path(String),
    #[error(
        "spec.bmc.address {0:?} contains credentials; put them into the Secret that spec.bmc.credentialsName names"
    )]
    Credentials(String),
    #[error(
        "spec.bmc.address {0:?} boots a ramdisk by {1}, and none is configured; start the operator with {2}"
    )]
    Ramdisk(String, &'static str, &'static str),
}

/// Everything that Ironic needs to reach one BMC, without credentials.
#[derive(Clone, Debug, PartialEq)]
pub struct Driver {
    pub driver: &'static str,
    pub boot_interface: Option<&'static str>,
    pub info: Map<String, Value>,
    username_key: &'static str,
    password_key: &'static str,
}

/// The driver and settings for an address; `Err` names the part of it that is wrong.
pub fn parse(bmc: &BmcDetails, settings: &HostSettings) -> Result<Driver, AddressError> {
    let address = bmc.address.trim();
    let shown = || quarry_ironic::secret::without_userinfo(address);
    let (scheme, rest) = address.split_once("://").unwrap_or(("ipmi", address));
    let (name, transport) = scheme.split_once('+').unwrap_or((scheme, "https"));
    let known = SCHEMES.iter().find(|one| one.name == name);
    let known = known.filter(|_| matches!(transport, "http" | "https")).ok_or_else(|| {
        let all: Vec<&str> = SCHEMES.iter().map(|one| one.name).collect();
        AddressError::Scheme(shown(), scheme.to_owned(), all.join(", "))
    })?;
    let (place, path) = rest.split_once('/').map_or((rest, ""), |(place, path)| (place, path));
    if place.contains('@') {
        return Err(AddressError::Credentials(shown()));
    }
    if place.is_empty() || place.starts_with(':') {
        return Err(AddressError::Host(shown()));
    }
    let mut info = ramdisk(known.boot, settings)
        .map_err(|(how, option)| AddressError::Ramdisk(shown(), how, option))?;
    if !known.redfish {
        let (host, port) = split_port(place);
        info.insert("ipmi_address".into(), host.into());
        info.insert("ipmi_port".into(), port.unwrap_or("623").into());
        return Ok(Driver {
            driver: known.driver,
            boot_interface: known.boot_interface,
            info,
            username_key: "ipmi_username",
            password_key: "ipmi_password",
        });
    }
    if path.is_empty() {
        return Err(AddressError::Path(shown()));
    }
    info.insert("redfish_address".into(), format!("{transport}://{place}").into());
    info.insert("redfish_system_id".into(), format!("/{}", path.trim_end_matches('/')).into());
    if bmc.disable_certificate_verification {
        info.insert("redfish_verify_ca".into(), false.into());
    }
    Ok(Driver {
        driver: known.driver,
        boot_interface: known.boot_interface,
        info,
        username_key: "redfish_username",
        password_key: "redfish_password",
    })
}

/// `None`: the driver of this address reaches no RAID controller, or the address is not valid.
pub fn hardware_raid(bmc: &BmcDetails) -> Option<&'static HardwareRaid> {
    let scheme = bmc.address.trim().split_once("://").map_or("ipmi", |(scheme, _)| scheme);
    let name = scheme.split_once('+').map_or(scheme, |(name, _)| name);
    let known = SCHEMES.iter().find(|one| one.name == name && one.redfish)?;
    Some(if known.driver == "idrac" { &IDRAC } else { &REDFISH })
}

/// The host and the port; an IPv6 address is in brackets.
fn split_port(place: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (host, rest.strip_prefix(':'));
    }
    place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port)))
}

type Missing = (&'static str, &'static str);

/// An ISO is for virtual media only; kernel and ramdisk are for both.
fn ramdisk(boot: Boot, settings: &HostSettings) -> Result<Map<String, Value>, Missing> {
    let mut info = Map::new();
    match (&settings.deploy_iso, &settings.deploy_kernel, &settings.deploy_ramdisk, boot) {
        (Some(iso), _, _, Boot::VirtualMedia | Boot::UefiHttp) => {
            info.insert("deploy_iso".into(), iso.clone().into());
        }
        (_, Some(kernel), Some(ramdisk), _) => {
            info.insert("deploy_kernel".into(), kernel.clone().into());
            info.insert("deploy_ramdisk".into(), ramdisk.clone().into());
        }
        (_, _, _, Boot::VirtualMedia | Boot::UefiHttp) => {
            return Err(("virtual media", "--deploy-iso, or --deploy-kernel and --deploy-ramdisk"));
        }
        (_, _, _, Boot::Network) => {
            return Err(("the network", "--deploy-kernel and --deploy-ramdisk"));
        }
    }
    Ok(info)
}

impl Driver {
    pub fn with_credentials(&self, username: &str, password: &str) -> Guarded {
        let mut info = self.info.clone();
        info.insert(self.username_key.into(), username.into());
        info.insert(self.password_key.into(), password.into());
        Guarded(info)
    }

    /// What must change so that the node is driven like this. Passwords are not returned by Ironic: `renew` says that
    /// they are new.
    pub fn changes(
        &self,
        found: &Guarded,
        username: &str,
        password: &str,
        renew: bool,
    ) -> Vec<PatchOp> {
        let wanted = self.with_credentials(username, password);
        let differs = |key: &str, value: &Value| match is_secret_key(key) {
            true => renew,
            false => found.get(key) != Some(value),
        };
        let changed = wanted.0.iter().filter(|(key, value)| differs(key, value));
        let mut ops: Vec<PatchOp> = changed
            .map(|(key, value)| PatchOp::add(format!("/driver_info/{key}"), value.clone()))
            .collect();
        // Left from another ramdisk or another kind of boot: Ironic would prefer it.
        let stale = ["deploy_iso", "deploy_kernel", "deploy_ramdisk", "redfish_verify_ca"];
        ops.extend(
            stale
                .iter()
                .filter(|key| found.get(key).is_some() && wanted.get(key).is_none())
                .map(|key| PatchOp::remove(format!("/driver_info/{key}"))),
        );
        ops
    }
}

/// `properties.capabilities` for a boot mode; absent is UEFI, as upstream.
pub fn boot_capability(mode: Option<&BootMode>) -> &'static str {
    match mode {
        Some(BootMode::Legacy) => "boot_mode:bios",
        Some(BootMode::UefiSecureBoot) => "boot_mode:uefi,secure_boot:true",
        Some(BootMode::Uefi | BootMode::Other(_)) | None => "boot_mode:uefi",
    }
}

/// `properties.capabilities` with this boot mode, where it has another; `None`: nothing is to change. What Ironic and
/// others wrote besides (`raid_level:1`) stays.
pub fn changed_capabilities(found: Option<&Value>, mode: Option<&BootMode>) -> Option<String> {
    let found = match found {
        None | Some(Value::Null) => "",
        Some(Value::String(text)) => text.as_str(),
        // Not as Ironic's documentation has it: what it means is not known.
        Some(_) => return None,
    };
    let is_boot = |part: &&str| {
        let key = part.split_once(':').map_or(*part, |(key, _)| key.trim());
        key == "boot_mode" || key == "secure_boot"
    };
    let parts = || found.split(',').map(str::trim).filter(|part| !part.is_empty());
    let wanted = boot_capability(mode);
    let known = parts().filter(is_boot).filter(|part| *part != "secure_boot:false");
    if known.eq(wanted.split(',')) {
        return None;
    }
    let others = parts().filter(|part| !is_boot(part));
    Some(wanted.split(',').chain(others).collect::<Vec<_>>().join(","))
}

pub fn properties(mode: Option<&BootMode>, architecture: &str) -> Map<String, Value> {
    let mut properties = Map::new();
    properties.insert("capabilities".into(), json!(boot_capability(mode)));
    if !architecture.is_empty() {
        properties.insert("cpu_arch".into(), architecture.into());
    }
    properties
}
