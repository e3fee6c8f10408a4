//! Tests: replaced files lead to a new client, unusable ones to an error, touched ones to nothing.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// A directory as kubelet mounts a Secret: files are links through `..data`, which is replaced.
struct MountedSecret(TempDir);

#[expect(clippy::disallowed_methods, reason = "files of the test")]
impl MountedSecret {
    fn new(username: &str, password: &str) -> Self {
        let secret = Self(TempDir::new().unwrap());
        secret.replace("1", username, password);
        for name in ["username", "password"] {
            symlink(Path::new("..data").join(name), secret.0.path().join(name)).unwrap();
        }
        secret
    }

    fn replace(&self, generation: &str, username: &str, password: &str) {
        let root = self.0.path();
        let directory = root.join(format!("..{generation}"));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("username"), username).unwrap();
        fs::write(directory.join("password"), password).unwrap();
        symlink(format!("..{generation}"), root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    }

    fn reloading(&self) -> Reloading {
        let auth = Some(self.0.path().to_owned());
        Reloading::new(Settings {
            url: "http://127.0.0.1:1".to_owned(),
            auth,
            ..Settings::default()
        })
    }
}

fn same(one: &Client, other: &Client) -> bool {
    Arc::ptr_eq(one.transport(), other.transport())
}

async fn later() {
    tokio::time::advance(CHECK_INTERVAL).await;
}

#[tokio::test(start_paused = true)]
async fn a_replaced_secret_leads_to_a_new_client() {
    let secret = MountedSecret::new("admin", "first");
    let reloading = secret.reloading();
    let first = reloading.client().unwrap();
    later().await;
    assert!(same(&first, &reloading.client().unwrap()), "unchanged files, the same client");
    // The same length: only the content differs.
    secret.replace("2", "admin", "other");
    assert!(same(&first, &reloading.client().unwrap()), "not compared again within the interval");
    later().await;
    let second = reloading.client().unwrap();
    assert!(!same(&first, &second));
    later().await;
    assert!(same(&second, &reloading.client().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn the_same_content_keeps_the_client() {
    let secret = MountedSecret::new("admin", "first");
    let reloading = secret.reloading();
    let first = reloading.client().unwrap();
    secret.replace("2", "admin", "first");
    later().await;
    assert!(same(&first, &reloading.client().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn an_unusable_secret_is_an_error_until_it_is_replaced() {
    let secret = MountedSecret::new("admin", "first");
    let reloading = secret.reloading();
    let first = reloading.client().unwrap();
    secret.replace("2", "admin", "");
    for _ in 0..3 {
        later().await;
        let error = reloading.client().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("/password has an empty password"), "{error}");
    }
    // The old credentials again are a decision of the administrator.
    secret.replace("3", "admin", "first");
    later().await;
    assert!(!same(&first, &reloading.client().unwrap()));
}

#[expect(clippy::disallowed_methods, reason = "files of the test")]
#[tokio::test(start_paused = true)]
async fn a_removed_file_is_an_error_with_its_name() {
    let secret = MountedSecret::new("admin", "first");
    let reloading = secret.reloading();
    reloading.client().unwrap();
    fs::remove_file(secret.0.path().join("password")).unwrap();
    later().await;
    let error = reloading.client().map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("/password cannot be read"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_client_without_files_stays() {
    let url = "http://127.0.0.1:1".to_owned();
    let reloading = Reloading::new(Settings { url, ..Settings::default() });
    let first = reloading.client().unwrap();
    later().await;
    assert!(same(&first, &reloading.client().unwrap()));
}
