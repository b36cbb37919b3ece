// Package fault applies faults to requests on their way to an API server: it delays or
// loses requests, loses or truncates responses, and freezes or ends watches.
//
// A [Rule] selects requests and says what happens to them. A [Set] holds rules, which can be
// added and removed at any time, and is a middleware: [Set.Handler] returns a handler that
// passes requests on to another one, such as [APIServer]. It must be served by HTTP/1.1,
// where a request can be reset without breaking the others on its connection.
package fault
