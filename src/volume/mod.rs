//! What a broker keeps on the volume for the whole cluster: blocks of producer ids.

pub mod producer_ids;
