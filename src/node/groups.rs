//! A stand-in.
#![allow(dead_code, unused_variables, clippy::unused_self, clippy::unnecessary_wraps)]
use super::Node;
use crate::error::Result;
use crate::group::{Changes, Claim, Committed, MemberSettings, Partitions, Position, Subscription};
use crate::machine::ProducerIdentity;
use crate::sync::{Arc as Pointer, Signal};
use crate::types::TopicPartition;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Membership {}
impl Membership {
    pub(crate) fn join(node: &Arc<Node>, settings: MemberSettings, signal: &Pointer<Signal>) -> Result<Arc<Self>> {
        unimplemented!()
    }
    pub(crate) fn polled(&self, prepared: &Partitions) -> Result<Changes> {
        unimplemented!()
    }
    pub(crate) fn upcoming(&self) -> Changes {
        unimplemented!()
    }
    pub(crate) fn may_read(&self) -> bool {
        unimplemented!()
    }
    pub(crate) fn claim(&self) -> Option<Claim> {
        unimplemented!()
    }
    pub(crate) fn subscribe(&self, subscription: Subscription) {}
    pub(crate) fn settle(&self) {}
    pub(crate) fn close(&self) -> Result<()> {
        unimplemented!()
    }
}
#[derive(Debug)]
pub(crate) struct Committing {}
impl Committing {
    pub(crate) fn try_take(&self) -> Option<Result<()>> {
        unimplemented!()
    }
    pub(crate) fn wait(self) -> Result<()> {
        unimplemented!()
    }
}
impl Node {
    pub(crate) fn commit_positions(
        &self,
        group: &str,
        member: Option<Claim>,
        positions: Vec<(TopicPartition, Position)>,
        producer: Option<ProducerIdentity>,
    ) -> Result<()> {
        unimplemented!()
    }
    pub(crate) fn begin_commit(
        &self,
        group: &str,
        member: Option<Claim>,
        positions: Vec<(TopicPartition, Position)>,
    ) -> Result<Committing> {
        unimplemented!()
    }
    pub(crate) fn committed(
        &self,
        group: &str,
        partitions: Option<Vec<TopicPartition>>,
        require_stable: bool,
    ) -> Result<Vec<(TopicPartition, Committed)>> {
        unimplemented!()
    }
}
