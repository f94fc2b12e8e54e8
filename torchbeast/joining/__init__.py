"""Hosts that join a running learner, serve environments to it, and leave.

A learner has a fixed number of *places*, one per environment server, each with the environments of
one game. A process of the learner, the gateway, listens for hosts. A host asks for places on a
control connection and gets a *lease* of some. For each connection that the actor pool opens to a
place, the host opens a connection to the gateway, and both sides copy bytes between it and the two
Unix sockets. So the actor pool and the host's servers speak gRPC as if they were on one machine,
and a place without a host is a server that is away.

All connections go from the host to the learner, over TLS with certificates on both sides.
"""
