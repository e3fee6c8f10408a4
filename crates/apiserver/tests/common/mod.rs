//! A custom resource for these tests and a server that serves it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResource;
use quarry_apiserver::{Options, Server};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Widget",
    plural = "widgets",
    namespaced,
    schema = "disabled"
)]
#[kube(status = "Value")]
pub struct WidgetSpec {
    pub size: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
}

pub fn widget(name: &str, size: &str) -> Widget {
    let mut widget = Widget::new(name, WidgetSpec { size: size.into(), ..WidgetSpec::default() });
    widget.metadata.namespace = Some("default".into());
    widget
}

pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![serde_saphyr::from_str(include_str!("widgets.yaml")).expect("the fixture is a CRD")]
}

pub fn server() -> Server {
    Server::in_memory(Options::new(crds()))
}
