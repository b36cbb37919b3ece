package main

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// theme are the colors of a picture.
type theme struct {
	name                       string
	background, text, gridline color.Color
	programs                   []color.Color
}

var themes = []theme{
	{"light", color.White, color.Gray{0x24}, color.Gray{0xdd}, []color.Color{color.RGBA{0x09, 0x69, 0xda, 0xff}, color.RGBA{0xbc, 0x4c, 0x00, 0xff}}},
	{"dark", color.RGBA{0x0d, 0x11, 0x17, 0xff}, color.Gray{0xe6}, color.Gray{0x33}, []color.Color{color.RGBA{0x58, 0xa6, 0xff, 0xff}, color.RGBA{0xff, 0xa6, 0x57, 0xff}}},
}

// curve is what one plot shows about each program: how a figure grows with the number of
// Icecreams.
type curve struct {
	title string
	of    func(figures map[string]float64, icecreams float64) float64
}

// row is a curve of a figure as it is in the table.
func row(title, name string) curve {
	return curve{title, func(figures map[string]float64, _ float64) float64 { return at(figures, name) }}
}

// each is a curve of a figure divided by the number of Icecreams.
func each(title, name string, unit float64) curve {
	return curve{title, func(figures map[string]float64, icecreams float64) float64 {
		return at(figures, name) / icecreams * unit
	}}
}

// at returns a figure; NaN if it was not measured.
func at(figures map[string]float64, name string) float64 {
	if figure, ok := figures[name]; ok {
		return figure
	}
	return math.NaN()
}

var curves = map[string][]curve{
	"cluster": {
		row("Seconds from launch until all statuses are correct", "02 cold start: every status correct, s"),
		each("CPU milliseconds for each Icecream", "04 CPU of it, s", 1e3),
		row("Resident memory, MB", "05 RSS after it, MB"),
		row("Requests for each Icecream", "08 requests per Icecream"),
	},
	"synthetic": {
		row("Seconds from launch until at rest", "03 launch until at rest, s"),
		each("CPU microseconds for each Icecream", "04 CPU of it, s", 1e6),
		each("Heap in use for each Icecream, kB", "06 heap: allocated, MB", 1e3),
		row("Milliseconds from a change to the request for it", "07 change to request for Deployment, p50, ms"),
	},
}

// drawPlots writes the curves of what was measured to a directory, as one picture for each
// theme.
func drawPlots(dir, source, caption string, programs []*program, all []measurement) error {
	var errs []error
	for _, t := range themes {
		errs = append(errs, drawPlot(filepath.Join(dir, fmt.Sprintf("performance-%s-%s.svg", source, t.name)), t, caption, curves[source], programs, all))
	}
	return errors.Join(errs...)
}

// drawPlot writes one picture, of two by two plots.
func drawPlot(path string, t theme, caption string, curves []curve, programs []*program, all []measurement) (err error) {
	tiles := make([][]*plot.Plot, 2)
	for i, c := range curves {
		p, err := t.plot(c, programs, all)
		if err != nil {
			return err
		}
		if i > 0 {
			p.Legend = plot.NewLegend() // that of the first is for all
		}
		p.Legend.Top, p.Legend.Left = true, true
		tiles[i/2] = append(tiles[i/2], p)
	}
	const width, height, footer = 30 * vg.Centimeter, 20 * vg.Centimeter, vg.Centimeter
	picture := vgsvg.New(width, height)
	canvas := draw.New(picture)
	canvas.SetColor(t.background)
	canvas.Fill(canvas.Path())
	rest := draw.Crop(canvas, 0, 0, footer, 0)
	grid := draw.Tiles{Rows: 2, Cols: 2, PadX: vg.Centimeter, PadY: vg.Centimeter, PadTop: vg.Millimeter * 5, PadLeft: vg.Millimeter * 5, PadRight: vg.Millimeter * 5}
	for i, line := range plot.Align(tiles, grid, rest) {
		for j := range line {
			tiles[i][j].Draw(line[j])
		}
	}
	style := tiles[0][0].X.Label.TextStyle
	style.XAlign = draw.XCenter
	canvas.FillText(style, vg.Point{X: width / 2, Y: footer / 3}, caption)
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = picture.WriteTo(file)
	return errors.Join(err, file.Close())
}

// plot returns the plot of one curve.
func (t theme) plot(c curve, programs []*program, all []measurement) (*plot.Plot, error) {
	p := plot.New()
	p.BackgroundColor = t.background
	p.Title.Text, p.X.Label.Text = c.title, "Icecreams"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Title.TextStyle.Color, p.Legend.TextStyle.Color = t.text, t.text
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Label.TextStyle.Color, axis.Tick.Color, axis.Tick.Label.Color = t.text, t.text, t.text, t.text
	}
	p.Y.Min = 0
	lines := plotter.NewGrid()
	lines.Vertical.Color, lines.Horizontal.Color = t.gridline, t.gridline
	p.Add(lines)
	for i, program := range programs {
		var points plotter.XYs
		for _, m := range all {
			if y := c.of(m.medians(program), float64(m.icecreams)); !math.IsNaN(y) {
				points = append(points, plotter.XY{X: float64(m.icecreams), Y: y})
			}
		}
		if len(points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = t.programs[i], vg.Points(2)
		dots.Color, dots.Shape = t.programs[i], draw.CircleGlyph{}
		p.Add(line, dots)
		p.Legend.Add(program.name, line, dots)
	}
	return p, nil
}
