package shout
