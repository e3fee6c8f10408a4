//! How the operator reaches Ironic, from the command line.

use anyhow::bail;
use clap::Args;
use quarry_core::bare_metal_host::HostSettings;
use quarry_ironic::Settings;
use quarry_operator::{
    Registry,
    bare_metal_host::{HostOptions, Ironic},
    group,
};
use std::path::PathBuf;

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Hosts")]
pub struct HostArgs {
    /// URL of Ironic, such as https://ironic:6385; BareMetalHosts are driven only with it
    #[arg(long, env = "IRONIC_URL", value_name = "URL")]
    pub ironic_url: Option<String>,
    /// Credentials for Ironic: a directory with the files username and password, or a file with USERNAME:PASSWORD
    #[arg(long, value_name = "PATH", requires = "ironic_url")]
    pub ironic_auth: Option<PathBuf>,
    /// Certificate authority of Ironic, as PEM [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "ironic_url")]
    pub ironic_ca: Option<PathBuf>,
    /// Certificate of this client for Ironic, as PEM
    #[arg(long, value_name = "FILE", requires = "ironic_client_key")]
    pub ironic_client_cert: Option<PathBuf>,
    /// Key of that certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "ironic_client_cert")]
    pub ironic_client_key: Option<PathBuf>,
    /// Accept any certificate of Ironic (insecure)
    #[arg(long, requires = "ironic_url")]
    pub ironic_insecure: bool,
    /// URL of the ISO image of the ramdisk, for hosts with virtual media
    #[arg(long, env = "DEPLOY_ISO_URL", value_name = "URL")]
    pub deploy_iso: Option<String>,
    /// URL of the ramdisk's kernel
    #[arg(long, env = "DEPLOY_KERNEL_URL", value_name = "URL", requires = "deploy_ramdisk")]
    pub deploy_kernel: Option<String>,
    /// URL of the ramdisk
    #[arg(long, env = "DEPLOY_RAMDISK_URL", value_name = "URL", requires = "deploy_kernel")]
    pub deploy_ramdisk: Option<String>,
    /// Hosts that Ironic inspects, cleans or deploys at the same time
    #[arg(long, default_value_t = HostSettings::default().max_busy_hosts, value_name = "COUNT")]
    pub max_busy_hosts: usize,
}

impl HostArgs {
    /// `None`: no Ironic is configured.
    pub fn options(&self) -> anyhow::Result<Option<HostOptions>> {
        let Some(url) = &self.ironic_url else { return Ok(None) };
        if self.max_busy_hosts == 0 {
            bail!(
                "--max-busy-hosts is 0, so that no host would ever be inspected; set it to 1 or more"
            );
        }
        let settings = Settings {
            url: url.clone(),
            auth: self.ironic_auth.clone(),
            ca: self.ironic_ca.clone(),
            client_cert: self.ironic_client_cert.clone(),
            client_key: self.ironic_client_key.clone(),
            insecure: self.ironic_insecure,
        };
        // A mistake is reported at the start; a file that goes wrong later is reported by the hosts.
        settings.load()?;
        let hosts = HostSettings {
            deploy_iso: self.deploy_iso.clone(),
            deploy_kernel: self.deploy_kernel.clone(),
            deploy_ramdisk: self.deploy_ramdisk.clone(),
            max_busy_hosts: self.max_busy_hosts,
        };
        Ok(Some(HostOptions::new(Ironic::reloading(settings), hosts)))
    }
}

/// Without Ironic the hosts group is off.
pub fn select(registry: Registry, hosts: Option<&HostOptions>) -> Registry {
    match hosts {
        Some(_) => registry,
        None => {
            if registry.has(group::HOSTS) {
                tracing::info!("skipped the controllers of hosts: --ironic-url is not set");
            }
            registry.without(group::HOSTS)
        }
    }
}
