//! Ring 3: the wire to clients and to engines.

pub mod tcp_info;
