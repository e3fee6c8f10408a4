//! What `quarry up` prints, written for its first use.

use super::{Standalone, demo};
use crate::volume::follow::seconds;
use std::{path::Path, time::Duration};

pub fn ready(standalone: &Standalone, took: Duration, demo: bool, has_class: bool) -> String {
    let program = program();
    let mut text = format!(
        "Quarry {} is ready after {}: {}, node {}, data in {}\n",
        crate::version::VERSION,
        seconds(took),
        standalone.url,
        standalone.node,
        standalone.dir.display()
    );
    if !standalone.agent {
        text.push_str("\nWithout root there is no agent: attaching and formatting loop devices need root. The API, kubectl and the command\nline work; volumes stay Pending. For real volumes run: sudo quarry up\n");
    }
    text.push_str(&format!(
        "\nIn another terminal:\n  export KUBECONFIG={}\n  {program} devices\n  {program} volumes\n  kubectl get volumes,persistentvolumes\n",
        quoted(&standalone.kubeconfig)
    ));
    if !demo && !has_class {
        text.push_str(&format!("\nA volume needs a StorageClass and there is none yet: --demo creates one ({}) with a first volume.\n", demo::CLASS));
    }
    text.push_str("\nCtrl-C stops it; volumes stay.\n");
    text
}

pub fn demo_done() -> String {
    let (program, volume, class) = (program(), demo::VOLUME, demo::CLASS);
    format!(
        "\nIt is a PersistentVolume of class {class} now. Explain it, create another one, delete it:\n  {program} explain volume/{volume}\n  {program} volume create second --class {class} --size 2Gi --wait\n  {program} volume delete {volume} --wait\n"
    )
}

pub fn demo_without_agent() -> String {
    format!(
        "volume {} is created and stays Pending without an agent: {} explain volume/{0}",
        demo::VOLUME,
        program()
    )
}

pub fn stopped(standalone: &Standalone) -> String {
    let volumes = if standalone.agent {
        "; volumes keep their files and loop devices until they are deleted (start again, then run `quarry volume delete NAME`)"
    } else {
        ""
    };
    format!("stopped{volumes}")
}

/// Under the table of devices.
pub fn disks(more: usize, real_disks: bool, agent: bool) -> String {
    let more = if more == 0 {
        String::new()
    } else {
        format!("… and {more} more: {} devices\n", program())
    };
    let leave = match (agent, real_disks) {
        (true, false) => {
            "Real disks are only observed: Quarry uses none of them until it is started with --allow-real-disks."
        }
        (true, true) => {
            "Real disks may be used (--allow-real-disks): those that are Available, and only when requested."
        }
        (false, _) => "They are only observed: without an agent nothing is used.",
    };
    format!("{more}{leave}\n")
}

/// This program as a user types it: by name where the shell finds it, else by path.
fn program() -> String {
    let called = std::env::args().next().unwrap_or_default();
    match std::env::current_exe() {
        Ok(path) if called.contains('/') => quoted(&path),
        _ => "quarry".into(),
    }
}

/// Quoted for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@%".contains(c));
    if plain { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_for_the_shell() {
        assert_eq!(quoted(Path::new("/var/lib/quarry/kubeconfig")), "/var/lib/quarry/kubeconfig");
        assert_eq!(quoted(Path::new("/my data/it's")), "'/my data/it'\\''s'");
    }
}
