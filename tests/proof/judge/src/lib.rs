//! Histories of locks and of what they guard, judged by checkers of other people.
//!
//! The parts: [`history`] reads the plain format, [`operation`] pairs its lines, [`spec`] says
//! what a fenced lock and a fenced register may do, one operation at a time, and [`checkers`] asks
//! `porcupine-rs` and `todc-utils` whether the history has an order that the specification allows.
//! [`edn`] writes the same history for Knossos and Elle.

pub mod checkers;
pub mod edn;
pub mod history;
pub mod operation;
pub mod spec;
