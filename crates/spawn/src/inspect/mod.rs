//! What is wrong with a program, in words, and the mend.
