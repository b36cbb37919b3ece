package process

import "testing"

func TestParseStat(t *testing.T) {
	const rest = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"
	for _, test := range []struct {
		name, stat           string
		wantState, wantTicks string
		wantErr              bool
	}{
		{name: "an ordinary name", stat: "42 (etcd)" + rest, wantState: "S", wantTicks: "4711"},
		{name: "a name made to deceive", stat: "42 (a) Z 1 (b)" + rest, wantState: "S", wantTicks: "4711"},
		{name: "no name", stat: "42 etcd" + rest, wantErr: true},
		{name: "cut short", stat: "42 (etcd) S 1 2", wantErr: true},
		{name: "nothing", stat: "", wantErr: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			state, ticks, err := parseStat([]byte(test.stat))
			if state != test.wantState || ticks != test.wantTicks || (err != nil) != test.wantErr {
				t.Errorf("got %q, %q, %v; want %q, %q, error %v", state, ticks, err, test.wantState, test.wantTicks, test.wantErr)
			}
		})
	}
}
