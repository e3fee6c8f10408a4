//! Rules of device sets that an API server evaluates.
//!
//! Owns: CEL over one template, one set and both lists of sets. They refuse what `problems.rs` finds, as far as the
//! cost limits of an API server allow it: quantities, and templates beside `config.metadataDevice`, are left to the
//! planner. What is valid and not built yet is accepted with a warning (`fields.rs`), because upstream's operator
//! serves it. Bounds exist for the estimated cost only; no cluster reaches them.

use kube::core::Rule;

pub const MAX_SETS: usize = 128;
pub const MAX_TEMPLATES: usize = 16;
pub const MAX_NAME: usize = 253;
pub const MAX_CONFIG_VALUE: usize = 1024;

fn rule(rule: impl Into<String>, message: &str) -> Rule {
    Rule::new(rule).message(message)
}

/// Of `name` of a set.
pub fn set_name() -> Rule {
    rule(
        "self.size() <= 63 && self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
        "name must be a valid name; use at most 63 lower case letters, digits, '-' and '.'",
    )
}

/// Of `count` of a set.
pub fn count() -> Rule {
    rule("self >= 0", "count must not be negative; set the number of OSDs, 0 requests none")
}

/// Of the spec of a template.
pub fn block() -> Rule {
    rule(
        "!has(self.volumeMode) || self.volumeMode in ['', 'Block']",
        "volumeMode must be Block, because an OSD needs a block device; set it to Block or remove it",
    )
}

/// Of the spec of a template.
pub fn request() -> Rule {
    rule(
        "has(self.resources) && has(self.resources.requests) && 'storage' in self.resources.requests",
        "resources.requests.storage is missing; give the size of the device, such as 10Gi; 1 accepts a device of any size",
    )
}

const NAME: &str = "(has(one.metadata) && has(one.metadata.name) ? one.metadata.name : '')";
const METADATA_DEVICE: &str =
    "(has(self.config) && 'metadataDevice' in self.config && self.config['metadataDevice'] != '')";

/// The rule holds of a set whose templates have their roles by name.
fn by_name(expression: &str) -> String {
    let expression = expression.replace("NAME", NAME);
    format!("self.volumeClaimTemplates.size() < 2 || {METADATA_DEVICE} || {expression}")
}

/// Of a set.
pub fn has_templates() -> Rule {
    rule(
        "self.volumeClaimTemplates.size() > 0",
        "volumeClaimTemplates is empty; add a template for the data device of each OSD",
    )
}

/// Of a set.
pub fn known_roles() -> Rule {
    rule(
        by_name(
            "self.volumeClaimTemplates.all(one, NAME.matches('^((osd-)?(data|metadata|wal))?$'))",
        ),
        "volumeClaimTemplates has a template whose metadata.name states no role; use data, metadata or wal",
    )
}

/// Of a set.
pub fn has_data() -> Rule {
    rule(
        by_name("self.volumeClaimTemplates.exists(one, NAME in ['', 'data', 'osd-data'])"),
        "volumeClaimTemplates has no template for data; name one of the templates data",
    )
}

/// Of a set.
pub fn distinct_roles() -> Rule {
    let once = |names: &str| {
        format!("self.volumeClaimTemplates.filter(one, NAME in [{names}]).size() < 2")
    };
    let all = [
        once("'', 'data', 'osd-data'"),
        once("'metadata', 'osd-metadata'"),
        once("'wal', 'osd-wal'"),
    ];
    rule(
        by_name(&format!("({})", all.join(" && "))),
        "volumeClaimTemplates has several templates for one role; use each of data, metadata and wal once",
    )
}

/// Of a set.
pub fn metadata_device() -> Rule {
    let value = "self.config['metadataDevice']";
    rule(
        format!(
            "!{METADATA_DEVICE} || ({value}.matches('^/dev/rook/device[1-9][0-9]?$') && int({value}.substring(16)) < self.volumeClaimTemplates.size())"
        ),
        "config.metadataDevice must be the device of a template other than the first; use /dev/rook/device1 for the second template",
    )
}

/// Of `spec.storage`.
pub fn distinct_names() -> Rule {
    let within = |list: &str| {
        format!(
            "(!has(self.{list}) || self.{list}.all(one, self.{list}.exists_one(other, other.name == one.name)))"
        )
    };
    let [plural, singular] = super::DEVICE_SET_KEYS;
    let between = format!(
        "(!has(self.{plural}) || !has(self.{singular}) || self.{plural}.all(one, !self.{singular}.exists(other, other.name == one.name)))"
    );
    rule(
        format!("{} && {} && {between}", within(plural), within(singular)),
        "storageClassDeviceSets has a name twice; use a name of its own for each set, also in storageClassDeviceSet",
    )
}
