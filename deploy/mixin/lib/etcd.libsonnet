// Clusters of etcd, told apart by whom each member knows and not by their job: large
// clusters keep events in an etcd of their own, which may be scraped by the same job.
function(e)
  local peers = 'etcd_network_known_peers{%s}' % e;
  // What a member that is down knew when it was last seen, as long as it is looked
  // for: one that was restored has another identity.
  local known = |||
    max by (job, Local, Remote) (
      %(peers)s
      or (
        last_over_time(%(peers)s[1d])
        and on (job, instance) up{%(e)s} == 0
      )
    ) == 1
  ||| % { peers: peers, e: e };
  // A member knows itself, too.
  local alive = 'label_replace(max by (Local) (%(peers)s and on (job, instance) etcd_server_has_leader{%(e)s} == 1), "Remote", "$1", "Local", "(.+)")' % { peers: peers, e: e };
  local members = 'count by (job, Local) (%s)' % known;
  {
    // members counts those of the cluster that each member is in.
    members: members,
    // answering counts those of them that answer and have a leader.
    answering: '(count by (job, Local) (%(known)s and on (Remote) %(alive)s) or 0 * %(members)s)' % { known: known, alive: alive, members: members },
  }
