"""The Python package of a bundle (tools/dev bundle) with that bundle's library and daemon, on a socket and a cache of their own."""
import os
import sys


def use(bundle, scratch):
    """The package; to be called before anything else imports it. `scratch` is a folder."""
    os.environ.update(QUERN_SOCKET=f"{scratch}/quernd.sock", QUERN_CACHE_DIR=f"{scratch}/cache", QUERN_DAEMON=f"{bundle}/bin/quernd",
                      QUERN_LIBRARY=f"{bundle}/lib/libquern.so.0")
    sys.path.insert(0, os.path.join(bundle, "bindings", "python"))
    import quern
    return quern
