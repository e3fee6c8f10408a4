//! `quarry version`: the version of this binary and the API versions that it serves.

use crate::{cli::VersionFormat, output};
use serde::Serialize;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Set by release builds: QUARRY_COMMIT=$(git rev-parse HEAD).
const COMMIT: Option<&str> = option_env!("QUARRY_COMMIT");

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    api: Vec<Api>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Api {
    kind: String,
    api_version: String,
}

fn current() -> Version {
    let api = quarry_api::crds::crds()
        .into_iter()
        .flat_map(|crd| {
            let (group, kind) = (crd.spec.group, crd.spec.names.kind);
            crd.spec.versions.into_iter().map(move |version| Api {
                kind: kind.clone(),
                api_version: format!("{group}/{}", version.name),
            })
        })
        .collect();
    Version { version: VERSION, commit: COMMIT, api }
}

pub fn render(format: VersionFormat) -> anyhow::Result<String> {
    let version = current();
    match format {
        VersionFormat::Json => output::json(&version),
        VersionFormat::Text => {
            let commit = version.commit.map_or_else(String::new, |commit| format!(" ({commit})"));
            let mut text = format!("quarry {}{commit}\n", version.version);
            for api in &version.api {
                text.push_str(&format!("  {:<14} {}\n", api.kind, api.api_version));
            }
            Ok(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_name_every_kind() {
        let text = render(VersionFormat::Text).unwrap();
        assert!(text.starts_with(&format!("quarry {VERSION}")));
        let json: serde_json::Value =
            serde_json::from_str(&render(VersionFormat::Json).unwrap()).unwrap();
        assert_eq!(json["api"].as_array().unwrap().len(), quarry_api::crds::crds().len());
        assert!(text.contains("Volume         storage.metalk8s.scality.com/v1alpha1"), "{text}");
    }
}
