//! [`Seeds`]: the nodes that a URL names. They are asked for the others.

use std::fmt;

use super::map::Address;

/// Some nodes of a cluster; one that answers is enough.
#[derive(Clone, Debug)]
pub(in super::super) struct Seeds(Vec<Address>);

impl Seeds {
    pub(in super::super) fn new(nodes: impl Iterator<Item = (String, u16)>) -> Self {
        Self(nodes.map(|(host, port)| Address { host, port }).collect())
    }

    pub(super) fn addresses(&self) -> &[Address] {
        &self.0
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{address}")?;
        }
        Ok(())
    }
}
