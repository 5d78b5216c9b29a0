//! Attacks on the stores with files and real servers: what is dropped, revoked, lost or resolved at
//! an awkward moment.

mod doubts;
mod drops;
mod losses;
mod resolves;
mod sites;
