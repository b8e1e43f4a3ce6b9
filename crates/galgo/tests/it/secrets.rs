use crate::harness::list;
list![];
