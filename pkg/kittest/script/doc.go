// Package script lets a test play the cluster around a controller. The controller's clients send their
// requests to a [Cluster], and the model of package apiserver answers them, with all that it knows of
// conflicts, preconditions, validation and finalizers. The test is everyone else. It runs in a
// testing/synctest bubble, whose time is that of the cluster. Package simulation draws all of that from
// a seed instead.
//
// # Stories
//
// A story is a text file that tells one promise: what people, policies and nodes do, line by line, and
// what there is then. The controller that ships plays it, so it tells nothing of how the promise is kept.
// A [Theater] plays the stories of a directory on the model; kube-controller-manager, the scheduler and
// the kubelets are in it (simulation.Workloads), and what they do takes seconds. go test -rewrite fills in
// what the commands show.
//
//	# Somebody deletes the Deployment. It comes back.
//
//	start
//	----
//
//	apply
//	apiVersion: example.com/v1
//	kind: Shop
//	metadata: {name: corner}
//	----
//
//	wait 10s
//	----
//	event about corner: Normal DeploymentCreated
//	Deployment corner of corner: 1 of shop:1
//	Shop corner Ready
//
// What people do:
//
//	begin NAME                      plays the file NAME.txt of the directory begin beside that of the stories, and
//	                                shows nothing
//	apply                           creates the objects in the input, or merges them into those that there are
//	edit KIND/NAME PATH=VALUE...    sets fields, or removes a field without =; edit pod/* status.phase=Failed
//	delete KIND/NAME [orphan|foreground]
//	pass DURATION [every=D COMMAND...]   lets time pass, or does that again and again; {} is how often, also in the
//	                                input, and {a|b} is a and b in turn. An edit that would change nothing is left out, so
//	                                pass 5m every=1s edit deployment/a spec.replicas=9 is another client that
//	                                insists on nine.
//
// A path is spec.replicas, spec.template.spec.containers.NAME.image, spec.list.0 or metadata.labels[a.com/b]. A name
// can be a pattern, and NAMESPACE/NAME.
//
// What policies, webhooks and quotas do, until allow:
//
//	deny RESOURCE [on=create|update] [PATH=PART] [by=webhook|policy|mutating-policy|quota|budget|validation|no-webhook|etcd] [code=N]
//	                                refuses what has PART in that field, with the words of the input, in which {} is
//	                                how often it did
//	                                RESOURCE can be pods/eviction, with the Pod as the object, and by=budget
//	change RESOURCE [on=...] [unless=PART] PATH=VALUE   sets a field of what is written, unless it has PART; in
//	                                VALUE, {} is what is asked for
//	allow
//
// What goes wrong elsewhere:
//
//	crash KIND/NAME                 the container of a Pod ends; it is started again within 40 s
//	flip KIND/NAME                  the readiness probe of a Pod fails from now on, or passes again
//	full|reject|quota DURATION      no node has room; each node rejects its Pods; no Pod can be created
//	fail VERB RESOURCE [SUBRESOURCE] with=lost|no-connection|unauthorized|busy|timeout|etcd|conflict|quota-conflict [times=N]
//	slow DURATION VERB RESOURCE [SUBRESOURCE]   each such request takes that long from now on
//	hold|release|relist RESOURCE    the caches of the controller trail; catch up; have to list
//	start, stop                     of the controller: a restart is both
//
// An image that is called "missing" or "does-not-exist" cannot be pulled, "unstartable" cannot be started,
// "crash" ends again and again, and "unready" or "never-ready" is never ready. Once its Pod is deleted, "slow" takes the
// grace period to end, and "endless" does not end.
//
// What is shown:
//
//	wait DURATION                   lets time pass, and shows the type and reason of each event since it was last
//	                                shown, and the objects of which Show says something
//	get KIND/NAME PATH...           shows fields
//	says KIND/NAME                  shows the message of the condition Ready unless it has the words of the input
//	told REASON                     shows the last message of an event with that reason unless one, since the last
//	                                count, has the words of the input
//	metric NAME                     shows the values of a gauge that are not zero
//	count                           begins to count requests and events, and notes what there is
//	at-most N VERB RESOURCE [SUBRESOURCE]   shows how many there were if there were more
//	at-most N writes                does so with all requests that change something
//	at-most N events REASON         does so with events
//	lost KIND/NAME                  shows how many of these objects, of those that there were at the last count, are
//	                                gone or have been made anew
//
// The stories of a controller can have commands of their own ([Theater.Do]).
//
// A story that begins with also is also played on a real control plane (see [Reality]), where only what it shows
// last is compared. It takes a minute at most and has no command about policies, failures or caches.
package script
