//! Status of a BareMetalHost.
//!
//! Owns: the upstream fields. What upstream requires is always written; what is missing is read as its zero value,
//! because a status is also read from an annotation. Next to read: `values.rs`.

use super::{
    CustomDeploy, FirmwareConfig, HardwareDetails, Image, RootDeviceHints, SwitchPortIdentifier,
    raid::RaidConfig,
    schema::{self, empty_as_none, fields, plain_integers},
    values::{BootMode, ErrorType, OperationalStatus, ProvisioningState, SwitchPortMode},
};
use crate::null_as_default;
use k8s_openapi::{
    api::core::v1::{Secret, SecretReference},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(
    transform = fields(
        &["errorCount", "errorMessage", "operationalStatus", "poweredOn", "provisioning", "provisioningFailCount"],
        &["errorCount", "provisioningFailCount"],
    ),
    transform = plain_integers
)]
pub struct BareMetalHostStatus {
    /// OK, discovered, error, delayed, detached, servicing, or empty.
    #[serde(default)]
    pub operational_status: OperationalStatus,
    /// What failed. Absent unless operationalStatus is error.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "empty_as_none")]
    pub error_type: Option<ErrorType>,
    /// When this status was last written. Absent: a status annotation may be restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_updated: Option<Time>,
    /// Deprecated: the profile that upstream matched.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hardware_profile: String,
    /// What inspection found. The HardwareData of the same name has the same; absent when it does not fit here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareDetails>,
    /// State in Ironic, and what was applied to the host.
    #[serde(default)]
    pub provisioning: ProvisionStatus,
    /// The last credentials with which the BMC was reached.
    #[serde(default)]
    pub good_credentials: CredentialsStatus,
    /// The last credentials that were given to Ironic.
    #[serde(default)]
    pub tried_credentials: CredentialsStatus,
    /// The last error; empty without one.
    #[serde(default)]
    pub error_message: String,
    /// Whether the host is powered on, as Ironic last reported.
    #[serde(default)]
    pub powered_on: bool,
    /// When operations started and ended.
    #[serde(default)]
    pub operation_history: OperationHistory,
    /// Errors since the last success; the delay before the next attempt grows with it.
    #[serde(default)]
    pub error_count: i64,
    /// Failures of provisioning the current image.
    #[serde(default)]
    pub provisioning_fail_count: i64,
    /// The image of the last attempt to provision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_image: Option<Image>,
    /// Manageable, AvailableForProvisioning, Provisioned, Ready, Progressing and Healthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Switch ports that upstream configured; Quarry leaves it as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub applied_network_attachment_configs: Vec<AppliedNetworkAttachmentConfig>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = fields(&["ID", "state"], &[]))]
pub struct ProvisionStatus {
    /// What the operator does with the host.
    #[serde(default)]
    pub state: ProvisioningState,
    /// UUID of the node in Ironic; empty before registration.
    #[serde(default, rename = "ID")]
    pub id: String,
    /// The image that was deployed last; its URL is empty without one.
    #[serde(default)]
    pub image: Image,
    /// The hints with which the root disk was selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_device_hints: Option<RootDeviceHints>,
    /// The boot mode that was applied.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "empty_as_none")]
    pub boot_mode: Option<BootMode>,
    /// The RAID settings that were applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raid: Option<RaidConfig>,
    /// Always empty, as upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareConfig>,
    /// The custom deploy step that was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
}

/// A Secret and its version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsStatus {
    /// The Secret.
    #[serde(default, rename = "credentials", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::secret_reference")]
    pub reference: Option<SecretReference>,
    /// Its resource version.
    #[serde(default, rename = "credentialsVersion", skip_serializing_if = "String::is_empty")]
    pub version: String,
}

impl CredentialsStatus {
    /// What to record about a Secret.
    pub fn of(secret: &Secret) -> Self {
        let metadata = &secret.metadata;
        CredentialsStatus {
            reference: Some(SecretReference {
                name: metadata.name.clone(),
                namespace: metadata.namespace.clone(),
            }),
            version: metadata.resource_version.clone().unwrap_or_default(),
        }
    }

    /// Whether this is what was recorded about the Secret in its present version.
    pub fn matches(&self, secret: &Secret) -> bool {
        self.reference.is_some() && *self == Self::of(secret)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = fields(&[], &[]))]
pub struct OperationHistory {
    #[serde(default)]
    pub register: OperationMetric,
    #[serde(default)]
    pub inspect: OperationMetric,
    #[serde(default)]
    pub provision: OperationMetric,
    #[serde(default)]
    pub deprovision: OperationMetric,
}

/// Written with null for a time that has not come, as upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = fields(&[], &[]))]
pub struct OperationMetric {
    /// When it started.
    #[serde(default)]
    #[schemars(schema_with = "schema::nullable_time")]
    pub start: Option<Time>,
    /// When it ended; null while it runs.
    #[serde(default)]
    #[schemars(schema_with = "schema::nullable_time")]
    pub end: Option<Time>,
}

impl OperationHistory {
    /// The entry of a state; `None` for states without one.
    pub fn of_mut(&mut self, state: &ProvisioningState) -> Option<&mut OperationMetric> {
        match state {
            ProvisioningState::Registering => Some(&mut self.register),
            ProvisioningState::Inspecting => Some(&mut self.inspect),
            ProvisioningState::Provisioning => Some(&mut self.provision),
            ProvisioningState::Deprovisioning => Some(&mut self.deprovision),
            ProvisioningState::None
            | ProvisioningState::Unmanaged
            | ProvisioningState::MatchProfile
            | ProvisioningState::Preparing
            | ProvisioningState::Ready
            | ProvisioningState::Available
            | ProvisioningState::Provisioned
            | ProvisioningState::ExternallyProvisioned
            | ProvisioningState::PoweringOffBeforeDelete
            | ProvisioningState::Deleting
            | ProvisioningState::Other(_) => None,
        }
    }
}

/// The configuration that upstream last applied to a switch port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedNetworkAttachmentConfig {
    /// Name of the interface.
    pub name: String,
    /// The configuration of the port.
    pub switch_port_config: SwitchPortConfig,
    /// The switch port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_port: Option<SwitchPortIdentifier>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = plain_integers)]
pub struct SwitchPortConfig {
    /// access, trunk or hybrid.
    pub mode: SwitchPortMode,
    /// The untagged VLAN.
    #[serde(rename = "nativeVLAN")]
    pub native_vlan: i64,
    /// The tagged VLANs.
    #[serde(
        default,
        rename = "allowedVLANs",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    pub allowed_vlans: Vec<i64>,
    /// Maximum size of a packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<i64>,
}
