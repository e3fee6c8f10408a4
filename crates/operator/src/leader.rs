//! Leader election over a Lease: one operator acts, the others wait.
//!
//! Guarantee: the holder renews the Lease well before it expires, or stops acting (the process ends).
//! Released at shutdown, so that the next one need not wait. Decisions are pure (`decide`), tested without an API.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, ResourceExt, api::PostParams};
use quarry_api::names;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a lease lasts without renewal.
const DURATION: SignedDuration = SignedDuration::from_secs(15);
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// Without a successful renewal for this long we stop acting, before another operator may start.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Write this lease (create it when there is none): we lead.
    Take(Box<LeaseSpec>),
    /// Another operator leads; read the Lease again after this long.
    Wait(SignedDuration),
}

/// `seen_since`: since when, by our own clock, the Lease is unchanged. Clocks of different
/// machines differ, so a lease is only taken when it has not changed for its whole duration *here*.
pub fn decide(
    lease: Option<&LeaseSpec>,
    me: &str,
    seen_since: Timestamp,
    now: Timestamp,
) -> Decision {
    let holder =
        lease.and_then(|spec| spec.holder_identity.as_deref()).filter(|holder| !holder.is_empty());
    let lasts = lease
        .and_then(|spec| spec.lease_duration_seconds)
        .map_or(DURATION, |seconds| SignedDuration::from_secs(i64::from(seconds)));
    let runs_out = seen_since + lasts;
    match holder {
        Some(holder) if holder != me && runs_out > now => {
            Decision::Wait(runs_out.duration_since(now))
        }
        _ => {
            let ours = holder == Some(me);
            let acquired =
                if ours { lease.and_then(|spec| spec.acquire_time.clone()) } else { None };
            let transitions = lease.and_then(|spec| spec.lease_transitions).unwrap_or(0);
            Decision::Take(Box::new(LeaseSpec {
                holder_identity: Some(me.to_owned()),
                lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
                acquire_time: acquired.or(Some(MicroTime(now))),
                renew_time: Some(MicroTime(now)),
                lease_transitions: Some(if ours || lease.is_none() {
                    transitions
                } else {
                    transitions + 1
                }),
                ..LeaseSpec::default()
            }))
        }
    }
}

#[derive(Clone)]
pub struct Election {
    api: Api<Lease>,
    me: String,
}

impl Election {
    pub fn new(client: Client, namespace: &str, me: &str) -> Self {
        Election { api: Api::namespaced(client, namespace), me: me.to_owned() }
    }

    /// Waits until we lead. `false` when it is stopped first.
    pub async fn acquire(&self, stop: &CancellationToken) -> bool {
        let mut last: Option<(Option<String>, Timestamp)> = None;
        loop {
            let debounce = match self.try_once(&mut last).await {
                Ok(None) => return true,
                Ok(Some(wait)) => Duration::try_from(wait).unwrap_or(RENEW_EVERY).min(RENEW_EVERY),
                Err(error) => {
                    tracing::warn!(%error, "failed to read or write the leader Lease, retrying");
                    Duration::from_secs(1)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(debounce) => {}
                () = stop.cancelled() => return false,
            }
        }
    }

    /// Renews until it fails for too long (returns) or until it is stopped (releases and returns).
    pub async fn hold(&self, stop: &CancellationToken) {
        let mut renewed = tokio::time::Instant::now();
        let mut last = None;
        loop {
            tokio::select! {
                () = tokio::time::sleep(RENEW_EVERY / 2) => {}
                () = stop.cancelled() => {
                    self.release().await;
                    return;
                }
            }
            // Never past the point at which we must have stopped.
            let attempt =
                tokio::time::timeout_at(renewed + GIVE_UP_AFTER, self.try_once(&mut last)).await;
            match attempt {
                Ok(Ok(None)) => renewed = tokio::time::Instant::now(),
                Ok(Ok(Some(_))) => {
                    tracing::error!("stopped: another operator holds the leader Lease");
                    return;
                }
                Ok(Err(error)) => tracing::warn!(%error, "failed to renew the leader Lease"),
                Err(_) => tracing::warn!("failed to renew the leader Lease: no answer in time"),
            }
            if renewed.elapsed() >= GIVE_UP_AFTER {
                tracing::error!("stopped: the leader Lease was not renewed in time");
                return;
            }
        }
    }

    /// `None`: we lead. `Some(wait)`: another operator does.
    async fn try_once(
        &self,
        last: &mut Option<(Option<String>, Timestamp)>,
    ) -> Result<Option<SignedDuration>, kube::Error> {
        let found = self.api.get_opt(names::LEADER_LEASE).await?;
        let now = Timestamp::now();
        let version = found.as_ref().and_then(ResourceExt::resource_version);
        let seen_since = match last {
            Some((known, since)) if *known == version => *since,
            _ => now,
        };
        *last = Some((version, seen_since));
        match decide(
            found.as_ref().and_then(|lease| lease.spec.as_ref()),
            &self.me,
            seen_since,
            now,
        ) {
            Decision::Wait(wait) => Ok(Some(wait)),
            Decision::Take(spec) => {
                let answer = match found {
                    None => {
                        let lease = Lease {
                            metadata: ObjectMeta {
                                name: Some(names::LEADER_LEASE.to_owned()),
                                ..ObjectMeta::default()
                            },
                            spec: Some(*spec),
                        };
                        self.api.create(&PostParams::default(), &lease).await
                    }
                    // A replace carries the resourceVersion: of two takers one meets a conflict.
                    Some(mut lease) => {
                        lease.spec = Some(*spec);
                        self.api.replace(names::LEADER_LEASE, &PostParams::default(), &lease).await
                    }
                };
                match answer {
                    Ok(_) => Ok(None),
                    // Written in between: the next try reads who holds it now.
                    Err(error) if crate::writer::is_code(&error, 409) => Err(error),
                    Err(error) => Err(error),
                }
            }
        }
    }

    async fn release(&self) {
        let released = async {
            let Some(mut lease) = self.api.get_opt(names::LEADER_LEASE).await? else {
                return Ok(());
            };
            let Some(spec) = lease
                .spec
                .as_mut()
                .filter(|spec| spec.holder_identity.as_deref() == Some(&self.me))
            else {
                return Ok(());
            };
            spec.holder_identity = None;
            self.api.replace(names::LEADER_LEASE, &PostParams::default(), &lease).await.map(|_| ())
        };
        let result: Result<(), kube::Error> = released.await;
        if let Err(error) = result {
            tracing::warn!(%error, "failed to release the leader Lease; the next operator waits until it expires");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_of_another_is_waited_for_then_taken() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let other = held_by("other");
        assert_eq!(
            decide(Some(&other), "me", now, now),
            Decision::Wait(SignedDuration::from_secs(15))
        );
        let Decision::Take(spec) =
            decide(Some(&other), "me", now, now + SignedDuration::from_secs(15))
        else {
            panic!()
        };
        assert_eq!(
            (spec.holder_identity.as_deref(), spec.lease_transitions),
            (Some("me"), Some(4))
        );
    }

    #[test]
    fn a_free_or_own_lease_is_taken_at_once() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for lease in [None, Some(held_by("")), Some(held_by("me"))] {
            assert!(matches!(decide(lease.as_ref(), "me", now, now), Decision::Take(_)));
        }
    }
}
