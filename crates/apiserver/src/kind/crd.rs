//! Creates served resources from a CustomResourceDefinition, one per served version.

use super::{Hooks, Registry, Resource, StatusMode, api_version, builtin};
use crate::cel::Rules;
use crate::present::{Columns, CustomColumn};
use crate::schema::{self, Schema};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    #[error("CRD {name} has no stored version; set storage: true on one version")]
    NoStorageVersion { name: String },
    #[error("the schema of CRD {name} cannot be used")]
    Schema { name: String, source: schema::CompileError },
}

pub fn register(registry: &mut Registry, crd: &CustomResourceDefinition) -> Result<(), CrdError> {
    let name = crd.metadata.name.clone().unwrap_or_default();
    let spec = &crd.spec;
    let stored = spec.versions.iter().find(|version| version.storage);
    let Some(stored) = stored else { return Err(CrdError::NoStorageVersion { name }) };
    let stored_api_version = api_version(&spec.group, &stored.name);
    let bucket = registry.bucket(&format!("{}/{}", spec.group, spec.names.plural));
    let metadata =
        schema::compile_with_definitions(&builtin::object_meta(registry), &registry.definitions)
            .map_err(|source| CrdError::Schema { name: name.clone(), source })?;
    for version in spec.versions.iter().filter(|version| version.served) {
        let raw = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let raw = raw.and_then(|schema| serde_json::to_value(schema).ok()).unwrap_or_default();
        let mut compiled = match &raw {
            Value::Object(_) => schema::compile(&raw)
                .map_err(|source| CrdError::Schema { name: name.clone(), source })?,
            _ => Schema { preserve_unknown: true, ..Schema::object([]) },
        };
        compiled.properties.insert("apiVersion".into(), Schema::string());
        compiled.properties.insert("kind".into(), Schema::string());
        compiled.properties.insert("metadata".into(), metadata.clone());
        let subresources = version.subresources.as_ref();
        let status = match subresources.and_then(|sub| sub.status.as_ref()) {
            Some(_) => StatusMode::Custom,
            None => StatusMode::Plain,
        };
        let selectable = version.selectable_fields.iter().flatten().map(|field| {
            let label = field.json_path.trim_start_matches('.').to_owned();
            let path = label.split('.').map(str::to_owned).collect();
            (label, path)
        });
        let columns =
            version.additional_printer_columns.iter().flatten().map(|column| CustomColumn {
                name: column.name.clone(),
                kind: column.type_.clone(),
                format: column.format.clone().unwrap_or_default(),
                description: column.description.clone().unwrap_or_else(|| {
                    format!(
                        "Custom resource definition column (in JSONPath format): {}",
                        column.json_path
                    )
                }),
                priority: column.priority.unwrap_or_default(),
                path: crate::present::JsonPath::parse(&column.json_path),
            });
        let names = &spec.names;
        let singular = names
            .singular
            .clone()
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| names.kind.to_lowercase());
        let list_kind = names.list_kind.clone().filter(|kind| !kind.is_empty());
        let resource = Resource {
            group: spec.group.clone(),
            version: version.name.clone(),
            plural: names.plural.clone(),
            singular,
            kind: names.kind.clone(),
            list_kind: list_kind.unwrap_or_else(|| format!("{}List", names.kind)),
            namespaced: spec.scope == "Namespaced",
            short_names: names.short_names.clone().unwrap_or_default(),
            categories: names.categories.clone().unwrap_or_default(),
            bucket,
            stored_api_version: stored_api_version.clone(),
            custom: true,
            status,
            generation: true,
            read_only: false,
            create_on_update: false,
            unconditional_update: false,
            returns_deleted: false,
            graceful: false,
            keeps_status_on_create: status == StatusMode::Plain,
            rules: Rules::compile(&raw),
            schema: compiled,
            hooks: Hooks::default(),
            view: None,
            columns: Columns::Custom(columns.collect()),
            selectable: selectable.collect(),
            openapi: crate::present::custom_openapi(&raw, &spec.group, &version.name, &names.kind),
            openapi_name: crate::present::openapi_name(&spec.group, &version.name, &names.kind),
        };
        registry.add(resource);
    }
    Ok(())
}
