//! One suite for both engines.

use std::{sync::Arc, time::Duration};

use tempfile::TempDir;
use toolpulse::core::{
    name::Namespace,
    policy::{Disabled, Policy, Rules},
    tool::StoredTool,
};
use toolpulse::store::{Change, Commit, Loaded, Location, SavedSuccess, Soft, Stamp, Store, StoreError};

use crate::values::{full, gateway, key, names, policy, probes, put, success, tool};

/// A store that can be looked at as a start would see it.
struct Rig {
    location: Location,
    store: Option<Store>,
    _dir: TempDir,
}

impl Rig {
    async fn new(sqlite: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let location =
            if sqlite { Location::Sqlite { dir: dir.path().join("a/b") } } else { Location::Memory };
        let (store, loaded) = Store::open(&location).await.unwrap();
        assert_eq!(loaded, Loaded::default());
        Self { location, store: Some(store), _dir: dir }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    /// What is there; through a restart where the engine outlives one.
    async fn state(&mut self) -> Loaded {
        let live = self.store().load().await.unwrap();
        if let Location::Sqlite { .. } = self.location {
            self.store.take().unwrap().close().await;
            let (store, loaded) = Store::open(&self.location).await.unwrap();
            self.store = Some(store);
            let ageless = |l: &Loaded| {
                let mut l = l.clone();
                l.successes.iter_mut().for_each(|s| s.age = None);
                l
            };
            assert_eq!(ageless(&live), ageless(&loaded), "a restart changes nothing");
            return loaded;
        }
        live
    }
}

macro_rules! both {
    ($($name:ident)*) => {$(
        mod $name {
            #[tokio::test]
            async fn memory() {
                super::rules::$name(super::Rig::new(false).await).await;
            }
            #[tokio::test]
            async fn sqlite() {
                super::rules::$name(super::Rig::new(true).await).await;
            }
        }
    )*};
}

both! {
    round_trip counters_never_go_back replacing_and_deleting_drop_successes successes_and_ages gateways
    soft_and_commit_keep_their_order many_at_once batches_are_whole closed_is_closed
    policies switches
}

mod rules {
    use super::*;

    pub(super) async fn round_trip(mut rig: Rig) {
        let mut tools = vec![tool("plain", 1), full(), tool("Z", 2), tool("a", 3)];
        for tool in &tools {
            rig.store().commit(put(tool)).await.unwrap();
        }
        tools.sort_by(|a, b| a.key.cmp(&b.key));
        let state = rig.state().await;
        assert_eq!(state.tools, tools, "all fields, by key");
        let approved = full().approved;
        let replaced = StoredTool { owner: "next".into(), from_manifest: true, approved, ..tool("a", 4) };
        rig.store().commit(put(&replaced)).await.unwrap();
        rig.store()
            .commit(Commit { changes: vec![Change::Delete(full().key)], generation: 0 })
            .await
            .unwrap();
        let state = rig.state().await;
        assert_eq!(names(&state), ["Z", "a", "plain"]);
        assert_eq!(state.tools[1], replaced);
    }

    pub(super) async fn counters_never_go_back(mut rig: Rig) {
        let commit = |generation| Commit { changes: vec![], generation };
        for generation in [5, 3, 0] {
            rig.store().commit(commit(generation)).await.unwrap();
            assert_eq!(rig.state().await.generation, 5);
        }
        let put_and_delete = Commit {
            changes: vec![Change::Put(tool("a", 8)), Change::Delete(tool("a", 8).key)],
            generation: 8,
        };
        rig.store().commit(put_and_delete).await.unwrap();
        assert_eq!(rig.state().await.generation, 8, "it outlives the tool that used it");
        for (up_to, want) in [(1000, 1000), (10, 1000), (2000, 2000)] {
            rig.store().reserve_revisions(up_to).await.unwrap();
            assert_eq!(rig.state().await.revision, want);
        }
    }

    pub(super) async fn replacing_and_deleting_drop_successes(mut rig: Rig) {
        let store = rig.store().clone();
        for name in ["same", "replaced", "deleted", "back"] {
            store.commit(put(&tool(name, 1))).await.unwrap();
            let tool = tool(name, 1);
            store.soft(vec![success(&tool, 1, "p", 1, None), success(&tool, 1, "q", 1, None)]).await.unwrap();
        }
        let changes = vec![
            Change::Put(StoredTool { owner: "other".into(), ..tool("same", 1) }),
            Change::Put(tool("replaced", 2)),
            Change::Delete(tool("deleted", 1).key),
            Change::Delete(tool("back", 1).key),
            Change::Put(tool("back", 1)),
            Change::Delete(tool("never", 1).key),
        ];
        store.commit(Commit { changes, generation: 2 }).await.unwrap();
        drop(store);
        assert_eq!(probes(&rig.state().await), [("same", 1, "p"), ("same", 1, "q")]);
        // Late news of what is gone.
        let late = [("replaced", 1), ("deleted", 1), ("never", 1), ("replaced", 3)];
        let late = late.map(|(name, generation)| success(&tool(name, generation), generation, "p", 0, None));
        rig.store().soft(late.into()).await.unwrap();
        let state = rig.state().await;
        assert_eq!(probes(&state), [("same", 1, "p"), ("same", 1, "q")]);
        assert_eq!(names(&state), ["back", "replaced", "same"]);
    }

    pub(super) async fn successes_and_ages(mut rig: Rig) {
        let t = tool("t", 1);
        let store = rig.store();
        store.commit(put(&t)).await.unwrap();
        let ttl = Some(Duration::new(86_400, 7));
        let future = Stamp { boot: i64::MAX, wall_ms: i64::MAX };
        let changes = vec![
            success(&t, 1, "a", 500, None),
            success(&t, 1, "a", 20, ttl),
            success(&t, 1, "b", 20, Some(Duration::ZERO)),
            success(&t, 1, "b", 10, None),
            Soft::Success { key: t.key.clone(), generation: 1, probe: "c".into(), at: future, ttl: None },
            success(&t, 1, "d", 1, None),
            Soft::ClearSuccess { key: t.key.clone(), probe: "d".into() },
            Soft::ClearSuccess { key: t.key.clone(), probe: "never".into() },
        ];
        store.soft(changes).await.unwrap();
        let state = rig.state().await;
        let saved: Vec<(&str, Option<u64>, Option<Duration>)> =
            state.successes.iter().map(|s| (&*s.probe, s.age.map(|a| a.as_secs()), s.ttl)).collect();
        // A slow machine makes them a bit older.
        let near = |age: Option<u64>, want: u64| age.is_some_and(|age| (want..want + 5).contains(&age));
        let [(a, a_age, a_ttl), (b, b_age, b_ttl), c] = saved[..] else { panic!("{saved:?}") };
        assert!(a == "a" && near(a_age, 20) && a_ttl == ttl, "the last one counts: {saved:?}");
        assert!(b == "b" && near(b_age, 10) && b_ttl.is_none(), "{saved:?}");
        assert_eq!(c, ("c", None, None), "a stamp from the future has no age");
        let SavedSuccess { key, generation, .. } = &state.successes[0];
        assert_eq!((key, *generation), (&t.key, 1));
    }

    pub(super) async fn gateways(mut rig: Rig) {
        let drop = |namespace: &str, id: &str| Soft::DropGateway {
            namespace: Namespace::parse(namespace).unwrap(),
            gateway_id: id.to_owned(),
        };
        let changes = vec![
            Soft::Gateway(gateway("b", "g", "{\"a\":1}")),
            Soft::Gateway(gateway("a", "g/\u{1f600}'", "not json \u{0}")),
            Soft::Gateway(gateway("a", "gone", "1")),
            Soft::Gateway(gateway("b", "g", "{\"a\":2}")),
            drop("a", "gone"),
            drop("a", "g"),
        ];
        rig.store().soft(changes).await.unwrap();
        let want = [gateway("a", "g/\u{1f600}'", "not json \u{0}"), gateway("b", "g", "{\"a\":2}")];
        assert_eq!(rig.state().await.gateways, want);
    }

    pub(super) async fn soft_and_commit_keep_their_order(mut rig: Rig) {
        let t = tool("t", 1);
        // Sent when called: polled in the opposite order, or not at all.
        let store = rig.store();
        let first = store.commit(put(&t));
        let second = store.soft(vec![success(&t, 1, "kept", 0, None)]);
        let third = store.commit(put(&StoredTool { owner: "second".into(), ..t.clone() }));
        drop(store.soft(vec![success(&t, 1, "cleared", 0, None)]));
        let last = store.soft(vec![Soft::ClearSuccess { key: t.key.clone(), probe: "cleared".into() }]);
        last.await.unwrap();
        third.await.unwrap();
        second.await.unwrap();
        first.await.unwrap();
        let state = rig.state().await;
        assert_eq!(probes(&state), [("t", 1, "kept")]);
        assert_eq!(&*state.tools[0].owner, "second");
    }

    pub(super) async fn many_at_once(mut rig: Rig) {
        let answers: Vec<_> =
            (0..1000).map(|n| rig.store().commit(put(&tool(&format!("t{n:04}"), n)))).collect();
        for answer in answers {
            answer.await.unwrap();
        }
        let state = rig.state().await;
        assert_eq!(state.generation, 999);
        let want: Vec<String> = (0..1000).map(|n| format!("t{n:04}")).collect();
        assert_eq!(names(&state), want);
    }

    pub(super) async fn batches_are_whole(mut rig: Rig) {
        let changes = (0..500).map(|n| Change::Put(tool(&format!("t{n:04}"), 7))).collect();
        rig.store().commit(Commit { changes, generation: 7 }).await.unwrap();
        assert_eq!(rig.state().await.tools.len(), 500);
        let changes = (0..500).map(|n| Change::Delete(key("", &format!("t{n:04}")))).collect();
        rig.store().commit(Commit { changes, generation: 7 }).await.unwrap();
        assert_eq!(rig.state().await, Loaded { generation: 7, ..Loaded::default() });
    }

    pub(super) async fn policies(mut rig: Rig) {
        let open = |agent| Policy { rules: Arc::default(), ..policy(agent) };
        let elsewhere = Policy { namespace: Namespace::parse("a-first").unwrap(), ..policy("z@x:/y") };
        let changes = [open("bot"), policy("gone"), elsewhere.clone(), policy("Bot"), policy("bot")];
        let mut changes: Vec<Change> = changes.map(Change::PutPolicy).into();
        let gone = policy("gone");
        changes.push(Change::DeletePolicy(gone.namespace, gone.agent.clone()));
        changes.push(Change::DeletePolicy(elsewhere.namespace.clone(), gone.agent));
        rig.store().commit(Commit { changes, generation: 0 }).await.unwrap();
        let state = rig.state().await;
        assert_eq!(
            state.policies,
            [elsewhere, policy("Bot"), policy("bot")],
            "by namespace and agent, the last counts"
        );
        let nothing = Policy { rules: Arc::new(Rules::nothing()), ..policy("bot") };
        let changes = vec![Change::PutPolicy(nothing.clone())];
        rig.store().commit(Commit { changes, generation: 0 }).await.unwrap();
        assert_eq!(rig.state().await.policies[2], nothing);
    }

    pub(super) async fn switches(mut rig: Rig) {
        let off = |message: &str, since_ms| Disabled { message: message.into(), since_ms };
        let (a, b, c) = (key("", "a"), key("x", "b"), key("", "c"));
        let changes = vec![
            Change::PutSwitch(b.clone(), off("'; \u{1f600}\u{0}", i64::MIN)),
            Change::PutSwitch(a.clone(), off("first", 1)),
            Change::PutSwitch(c.clone(), off("", 2)),
            Change::PutSwitch(a.clone(), off("second", 3)),
            Change::DeleteSwitch(c),
            Change::Put(tool("a", 1)),
            Change::Delete(a.clone()),
        ];
        rig.store().commit(Commit { changes, generation: 1 }).await.unwrap();
        let expected = [(a, off("second", 3)), (b, off("'; \u{1f600}\u{0}", i64::MIN))];
        assert_eq!(rig.state().await.switches, expected, "by key; a switch outlives its tool");
    }

    pub(super) async fn closed_is_closed(rig: Rig) {
        let other = rig.store().clone();
        let sent = other.commit(put(&tool("a", 1)));
        rig.store.unwrap().close().await;
        assert_eq!(sent.await, Ok(()), "what was sent before is done");
        assert_eq!(other.commit(put(&tool("b", 2))).await, Err(StoreError::Closed));
        assert_eq!(other.soft(vec![]).await, Err(StoreError::Closed));
        assert_eq!(other.reserve_revisions(1).await, Err(StoreError::Closed));
        assert_eq!(other.load().await, Err(StoreError::Closed));
        other.close().await;
    }
}
