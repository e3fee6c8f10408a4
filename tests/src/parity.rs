//! Runs the conversations in `tests/parity/` against the embedded API and a real API server, and
//! compares the responses after removing what must differ (uids, times, versions, managed fields).
//! Intended differences are listed with reasons in `tests/parity/known.yaml`; an entry that matches
//! no difference is an error.

mod compare;
mod conversation;
mod run;

pub use conversation::{Conversation, Known, conversations, known};
pub use run::{Report, run_all, run_embedded};

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use quarry_apiserver::{Options, Server};
use std::path::PathBuf;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("parity")
}

fn fixture<T: serde::de::DeserializeOwned>(name: &str) -> T {
    let path = directory().join("fixtures").join(name);
    let text =
        std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// A kind for these tests, with every kind of schema rule.
pub fn widgets() -> CustomResourceDefinition {
    fixture("widgets.yaml")
}

#[derive(serde::Deserialize)]
pub struct Policy {
    pub policy: ValidatingAdmissionPolicy,
    pub binding: ValidatingAdmissionPolicyBinding,
}

pub fn policies() -> Vec<Policy> {
    fixture("policies.yaml")
}

/// The embedded API with everything the conversations need.
pub fn embedded() -> Server {
    let mut crds = quarry_api::crds::crds();
    crds.push(widgets());
    let policies = policies().into_iter().map(|one| (one.policy, one.binding)).collect();
    Server::in_memory(Options { policies, ..Options::new(crds) })
}
