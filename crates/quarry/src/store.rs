//! `quarry store dump`: the objects in the store of a standalone Quarry, without starting it.

use crate::{data_dir, output, sanitize};
use serde_json::json;
use std::path::Path;

pub fn dump(chosen: Option<&Path>) -> anyhow::Result<()> {
    let dir = match chosen {
        Some(dir) => dir.to_owned(),
        None => data_dir::default()?,
    };
    for object in quarry_apiserver::dump(&dir)? {
        let line = json!({"resource": object.group_resource, "object": object.value}).to_string();
        output::print(&sanitize::json(&line))?;
    }
    Ok(())
}
