//! What changed between two looks, for people: Events.

use super::reason::Reason;
use quarry_api::{
    NodeInventoryStatus,
    node_inventory::{Device, DeviceState},
    quantity::Bytes,
};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    pub reason: &'static str,
    pub warning: bool,
    pub message: String,
}

pub const APPEARED: &str = "DeviceAppeared";
pub const DISAPPEARED: &str = "DeviceDisappeared";
pub const VERDICT_CHANGED: &str = "DeviceVerdictChanged";

/// More at once are told by their number: a shelf of disks must not bury everything else.
const AT_ONCE: usize = 10;

pub fn news(before: &NodeInventoryStatus, after: &NodeInventoryStatus) -> Vec<News> {
    let old: BTreeMap<_, &Device> = before.devices.iter().map(|device| (key(device), device)).collect();
    let new: BTreeMap<_, &Device> = after.devices.iter().map(|device| (key(device), device)).collect();
    let mut told = Vec::new();
    told.extend(limited(APPEARED, new.iter().filter(|(key, _)| !old.contains_key(*key)).map(|(_, device)| appeared(device)).collect()));
    told.extend(limited(DISAPPEARED, old.iter().filter(|(key, _)| !new.contains_key(*key)).map(|(_, device)| disappeared(device)).collect()));
    let changed = new.iter().filter_map(|(key, device)| verdict_changed(old.get(key)?, device));
    told.extend(limited(VERDICT_CHANGED, changed.collect()));
    told
}

/// The same device keeps its name while it is there; another identity is another device.
fn key(device: &Device) -> (String, Option<String>) {
    (device.name.clone(), device.identity.clone())
}

fn appeared(device: &Device) -> News {
    News { reason: APPEARED, warning: false, message: format!("{} appeared: {}", title(device), verdict(device)) }
}

fn disappeared(device: &Device) -> News {
    let owned = device.reasons.iter().filter_map(|told| Reason::parse(&told.reason)).any(Reason::claims);
    News { reason: DISAPPEARED, warning: owned, message: format!("{} disappeared; it was {}", title(device), verdict(device)) }
}

/// Settling is no news: it was told that the device is new.
fn verdict_changed(before: &Device, after: &Device) -> Option<News> {
    let settling = |device: &Device| device.reasons.iter().any(|told| told.reason == Reason::TooNew.as_str());
    let rest = |device: &Device| device.reasons.iter().filter(|told| told.reason != Reason::TooNew.as_str()).cloned().collect::<Vec<_>>();
    let same = before.state == after.state || (settling(before) != settling(after) && rest(before) == rest(after) && !rest(after).is_empty());
    if same {
        return None;
    }
    Some(News {
        reason: VERDICT_CHANGED,
        warning: after.state == DeviceState::Unknown && !settling(after),
        message: format!("{} was {}, now {}", title(after), before.state.as_str(), verdict(after)),
    })
}

fn title(device: &Device) -> String {
    let size = Bytes(u64::try_from(device.size).unwrap_or_default());
    let identity = device.identity.as_ref().map_or_else(String::new, |identity| format!(", {identity}"));
    format!("{} ({}, {size}{identity})", device.name, device.kind)
}

fn verdict(device: &Device) -> String {
    let why: Vec<String> =
        device.reasons.iter().map(|told| Reason::parse(&told.reason).map_or_else(|| told.reason.clone(), |reason| reason.sentence(&told.detail))).collect();
    if why.is_empty() { device.state.as_str().to_owned() } else { format!("{}, because it {}", device.state.as_str(), why.join("; it ")) }
}

fn limited(reason: &'static str, mut news: Vec<News>) -> Vec<News> {
    if news.len() > AT_ONCE {
        let more = news.len() - (AT_ONCE - 1);
        let warning = news[AT_ONCE - 1..].iter().any(|one| one.warning);
        news.truncate(AT_ONCE - 1);
        news.push(News { reason, warning, message: format!("and {more} more devices: see quarry devices, or kubectl get nodeinventory") });
    }
    for one in &mut news {
        // An Event's message may have 1,024 bytes.
        if one.message.len() > 1000 {
            one.message = one.message.chars().take(240).collect::<String>() + "…";
        }
    }
    news
}
